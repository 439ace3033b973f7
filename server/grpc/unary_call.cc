#include "server/grpc/unary_call.h"

#include <string>
#include <utility>

#include "server/grpc/status_mapping.h"

namespace refrain::server::rpc {
namespace {

class UnaryCall final : public ::grpc::ServerUnaryReactor {
 public:
  explicit UnaryCall(Reception* reception) : reception_(reception) {}

  void OnDone() override {
    Reception* const reception = reception_;
    delete this;
    reception->Leave();
  }

 private:
  Reception* const reception_;
};

}  // namespace

::grpc::ServerUnaryReactor* AnswerOnQueue(::grpc::CallbackServerContext* context,
                                          Reception* reception, access::Area area,
                                          size_t request_bytes, TaskQueue* queue,
                                          std::function<absl::Status(const Caller& caller)> work) {
  auto* const call = new UnaryCall(reception);  // OnDone deletes it
  absl::StatusOr<Caller> caller = reception->Enter(context, area, request_bytes);
  if (!caller.ok()) {
    call->Finish(GrpcStatusOf(caller.status()));
    return call;
  }
  queue->Post([=, caller = *std::move(caller), work = std::move(work)] {
    const absl::Status status =
        context->IsCancelled() ? absl::CancelledError("the call was cancelled") : work(caller);
    const ::grpc::Status answer = GrpcStatusOf(status);
    if (answer.error_code() == ::grpc::StatusCode::INTERNAL) {
      reception->log().Error("request failed", {{"request", caller.request_id},
                                                {"status", std::string(status.ToString())}});
    }
    call->Finish(answer);
  });
  return call;
}

}  // namespace refrain::server::rpc
