#ifndef REFRAIN_SERVER_GRPC_REFLECTION_H_
#define REFRAIN_SERVER_GRPC_REFLECTION_H_

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <vector>

#include "server/access/gate.h"

namespace refrain::server::rpc {

// The services grpc.reflection.v1 and v1alpha: tell which services there are, and what their
// messages look like, for whoever has a key of either kind. gRPC's own would read whatever
// strangers send it, which may take 45 times its bytes, and keeps a thread for each stream. Here a
// stream keeps none, and a question is read if it is small. For ServerBuilder; `gate` outlives the
// server.
std::vector<std::unique_ptr<::grpc::Service>> MakeReflection(const access::Gate* gate);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_REFLECTION_H_
