#ifndef REFRAIN_SERVER_GRPC_UNARY_CALL_H_
#define REFRAIN_SERVER_GRPC_UNARY_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>

#include "absl/status/status.h"
#include "server/grpc/reception.h"

namespace refrain::server::rpc {

// Lets `work` answer a call on a thread of `queue`; its status ends the call. `work` runs once the
// caller is known and admitted to `area`, and not at all for a call that was cancelled before.
// Request and response live until it has returned. All that is pointed to outlives the call.
struct UnaryExchange {
  ::grpc::CallbackServerContext* context = nullptr;
  Incoming incoming;
  const google::protobuf::Message* response = nullptr;
};
::grpc::ServerUnaryReactor* AnswerOnQueue(const UnaryExchange& exchange, Reception* reception,
                                          access::Area area, TaskQueue* queue,
                                          std::function<absl::Status(const Caller& caller)> work);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_UNARY_CALL_H_
