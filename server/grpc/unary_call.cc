#include "server/grpc/unary_call.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/generation_note.h"
#include "server/grpc/guarded.h"
#include "server/grpc/stalling_call.h"

namespace refrain::server::rpc {
namespace {

// Lives until gRPC is done with it (OnDone) and no task refers to it any more.
class UnaryCall final : public ::grpc::ServerUnaryReactor,
                        public StallingCall,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  UnaryCall(const UnaryExchange& exchange, Reception* reception)
      : StallingCall(exchange.context), exchange_(exchange), reception_(reception) {}

  absl::Status Enter(access::Area area) {
    self_ = shared_from_this();
    absl::StatusOr<Caller> caller =
        reception_->Enter(exchange_.context, area, exchange_.incoming, &record_);
    if (!caller.ok()) return caller.status();
    caller_ = *std::move(caller);
    return absl::OkStatus();
  }

  const std::string& owner() const { return caller_.principal.key_name; }

  void Run(const std::function<absl::Status(const Caller& caller)>& work) {
    if (exchange_.context->IsCancelled())
      return End(absl::CancelledError("the call was cancelled"));
    End(Guarded([&] {
      const absl::Status read = reception_->Read(exchange_.incoming, &caller_, &record_);
      return read.ok() ? work(caller_) : read;
    }));
  }

  void End(absl::Status status) {
    if (status.ok()) status = Guarded([this] { return WriteResponse(exchange_, &record_); });
    const ::grpc::Status answer =
        reception_->NoteEnd(*exchange_.context, status, exchange_.context->IsCancelled(), &record_);
    AppendRefusal(status, &record_.details);
    BeginWrite();
    Finish(answer);
  }

  void OnDone() override {
    EndWrite();
    if (exchange_.context->IsCancelled()) Reception::NoteLeft(*exchange_.context, &record_);
    record_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    caller_.held_bytes.reset();
    reception_->Leave(record_);
    self_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;

  const std::string& request_id() const override { return record_.request_id; }

  const UnaryExchange exchange_;
  Reception* const reception_;
  const Clock::time_point begin_ = Clock::now();
  CallRecord record_;
  Caller caller_;
  std::shared_ptr<UnaryCall> self_;  // until OnDone
};

}  // namespace

absl::Status WriteResponse(const UnaryExchange& exchange, CallRecord* record) {
  WriteMessage(*exchange.response, exchange.response_bytes);
  record->response_bytes = exchange.response_bytes->Length();
  return absl::OkStatus();
}

::grpc::ServerUnaryReactor* AnswerOnQueue(const UnaryExchange& exchange, Reception* reception,
                                          access::Area area, TaskQueue* queue,
                                          std::function<absl::Status(const Caller& caller)> work) {
  const auto call = std::make_shared<UnaryCall>(exchange, reception);
  if (absl::Status status = call->Enter(area); !status.ok()) {
    call->End(status);
    return call.get();
  }
  reception->Watch(call);
  queue->Post(call->owner(), [call, work = std::move(work)] { call->Run(work); });
  return call.get();
}

}  // namespace refrain::server::rpc
