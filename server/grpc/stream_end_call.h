#ifndef REFRAIN_SERVER_GRPC_STREAM_END_CALL_H_
#define REFRAIN_SERVER_GRPC_STREAM_END_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/token_stream.h"
#include "server/grpc/reception.h"
#include "server/grpc/unary_call.h"

namespace refrain::server::rpc {

// What answers a unary call with what the engine has made once it is done. Both run on threads of
// `queue`; between them no thread waits.
struct StreamEndWork {
  // A ticket that it takes is given back when the answer is there.
  using Submit = std::function<absl::StatusOr<std::shared_ptr<engine::TokenStream>>(
      const Caller&, access::Ticket* ticket)>;
  // `last` is the stream's last batch, its status OK.
  using Answer = std::function<absl::Status(const Caller&, engine::StreamBatch last)>;

  // What the client is told in place of the status with which the stream has ended, which is not
  // OK.
  using Failure = std::function<absl::Status(const absl::Status&)>;

  TaskQueue* queue = nullptr;
  Submit submit;
  Answer answer;
  Failure failure = nullptr;  // null: as it is
};

// As AnswerOnQueue. A call that is cancelled, by its client, its deadline or a broken connection,
// ends the engine's work. All that `work` refers to outlives the call.
::grpc::ServerUnaryReactor* AnswerAtStreamEnd(const UnaryExchange& exchange, Reception* reception,
                                              access::Area area, StreamEndWork work);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_STREAM_END_CALL_H_
