#include "server/grpc/unary_call.h"

#include <chrono>
#include <string>
#include <utility>

#include "server/grpc/status_mapping.h"

namespace refrain::server::rpc {
namespace {

class UnaryCall final : public ::grpc::ServerUnaryReactor {
 public:
  UnaryCall(const UnaryExchange& exchange, Reception* reception)
      : exchange_(exchange), reception_(reception) {}

  absl::StatusOr<Caller> Enter(access::Area area) {
    return reception_->Enter(exchange_.context, area, exchange_.incoming, &record_);
  }

  void End(const absl::Status& status) {
    const ::grpc::Status answer = GrpcStatusOf(status);
    if (answer.error_code() == ::grpc::StatusCode::INTERNAL) {
      reception_->log().Error("request failed", {{"request", record_.request_id},
                                                 {"status", std::string(status.ToString())}});
    }
    if (status.ok()) record_.response_bytes = exchange_.response->ByteSizeLong();
    Reception::NoteEnd(*exchange_.context, status, exchange_.context->IsCancelled(), &record_);
    Finish(answer);
  }

  void OnDone() override {
    record_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    Reception* const reception = reception_;
    const CallRecord record = std::move(record_);
    delete this;
    reception->Leave(record);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const UnaryExchange exchange_;
  Reception* const reception_;
  const Clock::time_point begin_ = Clock::now();
  CallRecord record_;
};

}  // namespace

::grpc::ServerUnaryReactor* AnswerOnQueue(const UnaryExchange& exchange, Reception* reception,
                                          access::Area area, TaskQueue* queue,
                                          std::function<absl::Status(const Caller& caller)> work) {
  auto* const call = new UnaryCall(exchange, reception);  // OnDone deletes it
  absl::StatusOr<Caller> caller = call->Enter(area);
  if (!caller.ok()) {
    call->End(caller.status());
    return call;
  }
  queue->Post([=, context = exchange.context, caller = *std::move(caller), work = std::move(work)] {
    call->End(context->IsCancelled() ? absl::CancelledError("the call was cancelled")
                                     : work(caller));
  });
  return call;
}

}  // namespace refrain::server::rpc
