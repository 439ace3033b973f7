#ifndef REFRAIN_SERVER_GRPC_UNARY_CALL_H_
#define REFRAIN_SERVER_GRPC_UNARY_CALL_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/grpc/call_record.h"
#include "server/grpc/message.h"
#include "server/grpc/reception.h"

namespace refrain::server::rpc {

// What gRPC gives to a raw unary method; all outlive the call.
struct RawUnary {
  ::grpc::CallbackServerContext* context = nullptr;
  const ::grpc::ByteBuffer* request = nullptr;
  ::grpc::ByteBuffer* response = nullptr;
};

// A call with its messages.
struct UnaryExchange {
  ::grpc::CallbackServerContext* context = nullptr;
  Incoming incoming;
  ::grpc::ByteBuffer* response_bytes = nullptr;
  std::shared_ptr<const google::protobuf::Message> response;
};

// Serialises the response into what gRPC sends; the record says how much that is. OK, but throws
// where there is no memory (see Guarded).
absl::Status WriteResponse(const UnaryExchange& exchange, CallRecord* record);

// Lets `work` answer a call on a thread of `queue`; its status ends the call. `work` runs once the
// caller is known and admitted to `area` and the request is read, and not at all for a call that
// was cancelled before. All that is pointed to outlives the call.
::grpc::ServerUnaryReactor* AnswerOnQueue(const UnaryExchange& exchange, Reception* reception,
                                          access::Area area, TaskQueue* queue,
                                          std::function<absl::Status(const Caller& caller)> work);

// The same for work that names the messages' types.
template <class Request, class Response>
::grpc::ServerUnaryReactor* AnswerOnQueue(
    const RawUnary& raw, std::string_view path, Reception* reception, access::Area area,
    TaskQueue* queue,
    std::function<absl::Status(const Caller& caller, const Request& in, Response* out)> work) {
  const auto in = std::make_shared<Request>();
  const auto out = std::make_shared<Response>();
  return AnswerOnQueue({raw.context, {path, raw.request, in}, raw.response, out}, reception, area,
                       queue, [in, out, work = std::move(work)](const Caller& caller) {
                         return work(caller, *in, out.get());
                       });
}

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_UNARY_CALL_H_
