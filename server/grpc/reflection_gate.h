#ifndef REFRAIN_SERVER_GRPC_REFLECTION_GATE_H_
#define REFRAIN_SERVER_GRPC_REFLECTION_GATE_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/access/gate.h"

namespace refrain::server::rpc {

// Asks callers of gRPC's own reflection service for a key, as Reception does for ours: who has none
// gets answers that say so, and UNAUTHENTICATED in the end. Other calls are left alone. For
// ServerBuilder; `gate` must outlive the server.
std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface> MakeReflectionGate(
    const access::Gate* gate);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_REFLECTION_GATE_H_
