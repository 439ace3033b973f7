#ifndef REFRAIN_SERVER_GRPC_STATUS_MAPPING_H_
#define REFRAIN_SERVER_GRPC_STATUS_MAPPING_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace refrain::server::rpc {

// The one place where a status becomes a gRPC status. Message, code, field and waiting time are
// those of the HTTP answer (server/status_mapping.h) and travel as google.rpc details: ErrorInfo
// always, BadRequest where a field is wrong, RetryInfo where coming back may help. A request that
// the stopping server cancels is UNAVAILABLE; what may show internals is INTERNAL without its
// message. Pure; any thread.
::grpc::Status GrpcStatusOf(const absl::Status& status);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_STATUS_MAPPING_H_
