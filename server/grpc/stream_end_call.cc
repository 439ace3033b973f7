#include "server/grpc/stream_end_call.h"

#include <string>
#include <utility>

#include "engine/annotated_mutex.h"
#include "server/grpc/status_mapping.h"

namespace refrain::server::rpc {
namespace {

// Lives until gRPC is done with it (OnDone) and no task refers to it any more. Submit and Advance
// come one after the other: the stream calls for an Advance only when it has something to read, and
// nothing comes after its end.
class StreamEndCall final : public ::grpc::ServerUnaryReactor,
                            public std::enable_shared_from_this<StreamEndCall> {
 public:
  StreamEndCall(::grpc::CallbackServerContext* context, Reception* reception, StreamEndWork work)
      : context_(context), reception_(reception), work_(std::move(work)) {}

  void Start(access::Area area, size_t request_bytes) {
    self_ = shared_from_this();
    absl::StatusOr<Caller> caller = reception_->Enter(context_, area, request_bytes);
    if (!caller.ok()) return End(caller.status());
    caller_ = *std::move(caller);
    work_.queue->Post([self = shared_from_this()] { self->Submit(); });
  }

  void OnCancel() override {
    std::shared_ptr<engine::TokenStream> stream;
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
      stream = stream_;
    }
    if (stream != nullptr) stream->Cancel();
  }

  void OnDone() override {
    std::shared_ptr<engine::TokenStream> stream;
    {
      MutexLock lock(mutex_);
      stream = std::exchange(stream_, nullptr);
    }
    if (stream != nullptr) stream->SetWakeup(nullptr);
    reception_->Leave();
    self_.reset();
  }

 private:
  void Submit() {
    if (Cancelled()) return End(absl::CancelledError("the call was cancelled"));
    auto submitted = work_.submit(caller_);
    if (!submitted.ok()) return End(submitted.status());
    const std::shared_ptr<engine::TokenStream> stream = *std::move(submitted);
    {
      MutexLock lock(mutex_);
      stream_ = stream;
    }
    if (Cancelled()) stream->Cancel();
    // Runs on the engine thread.
    stream->SetWakeup(
        [self = shared_from_this()] { self->work_.queue->Post([self] { self->Advance(); }); });
  }

  void Advance() {
    std::shared_ptr<engine::TokenStream> stream;
    {
      MutexLock lock(mutex_);
      stream = stream_;
    }
    if (stream == nullptr) return;
    engine::StreamBatch batch = stream->Read();
    if (!batch.finished) return;
    const absl::Status status = batch.status;
    End(status.ok() ? work_.answer(caller_, std::move(batch)) : status);
  }

  bool Cancelled() {
    MutexLock lock(mutex_);
    return cancelled_;
  }

  void End(const absl::Status& status) {
    const ::grpc::Status answer = GrpcStatusOf(status);
    if (answer.error_code() == ::grpc::StatusCode::INTERNAL) {
      reception_->log().Error("request failed", {{"request", caller_.request_id},
                                                 {"status", std::string(status.ToString())}});
    }
    Finish(answer);
  }

  ::grpc::CallbackServerContext* const context_;
  Reception* const reception_;
  const StreamEndWork work_;
  Caller caller_;
  std::shared_ptr<StreamEndCall> self_;  // until OnDone

  Mutex mutex_;
  bool cancelled_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::shared_ptr<engine::TokenStream> stream_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace

::grpc::ServerUnaryReactor* AnswerAtStreamEnd(::grpc::CallbackServerContext* context,
                                              Reception* reception, access::Area area,
                                              size_t request_bytes, StreamEndWork work) {
  auto call = std::make_shared<StreamEndCall>(context, reception, std::move(work));
  call->Start(area, request_bytes);
  return call.get();
}

}  // namespace refrain::server::rpc
