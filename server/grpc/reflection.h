#ifndef REFRAIN_SERVER_GRPC_REFLECTION_H_
#define REFRAIN_SERVER_GRPC_REFLECTION_H_

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <vector>

#include "server/grpc/reception.h"

namespace refrain::server::rpc {

// The services grpc.reflection.v1 and v1alpha: tell which services there are, and what their
// messages look like, for whoever has a key of either kind. gRPC's own would read whatever
// strangers send it, which may take 45 times its bytes, and keeps a thread for each stream. Here a
// stream keeps none, a question is read if it is small, and a client that does not read its answer
// is cut off like others (StallingCall). For ServerBuilder; `reception` outlives the server.
std::vector<std::unique_ptr<::grpc::Service>> MakeReflection(Reception* reception);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_REFLECTION_H_
