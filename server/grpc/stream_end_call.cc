#include "server/grpc/stream_end_call.h"

#include <chrono>
#include <string>
#include <utility>

#include "engine/annotated_mutex.h"
#include "server/generation_note.h"
#include "server/grpc/guarded.h"
#include "server/grpc/stalling_call.h"

namespace refrain::server::rpc {
namespace {

// Lives until gRPC is done with it (OnDone) and no task refers to it any more. Submit and Advance
// come one after the other: the stream calls for an Advance only when it has something to read, and
// nothing comes after its end.
class StreamEndCall final : public ::grpc::ServerUnaryReactor,
                            public StallingCall,
                            public std::enable_shared_from_this<StreamEndCall> {
 public:
  StreamEndCall(const UnaryExchange& exchange, Reception* reception, StreamEndWork work)
      : StallingCall(exchange.context),
        exchange_(exchange),
        reception_(reception),
        work_(std::move(work)) {}

  void Start(access::Area area) {
    self_ = shared_from_this();
    absl::StatusOr<Caller> caller =
        reception_->Enter(exchange_.context, area, exchange_.incoming, &record_);
    if (!caller.ok()) return End(caller.status());
    caller_ = *std::move(caller);
    reception_->Watch(weak_from_this());
    work_.queue->Post(caller_.principal.key_name, [self = shared_from_this()] { self->Submit(); });
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
    EndWrite();
    std::shared_ptr<engine::TokenStream> stream;
    {
      MutexLock lock(mutex_);
      stream = std::exchange(stream_, nullptr);
    }
    if (stream != nullptr) {
      stream->SetWakeup(nullptr);
      // One that was cancelled half-way has woken nobody.
      ticket_.ChargeUsage(stream->Read().usage);
    }
    if (Cancelled()) Reception::NoteLeft(*exchange_.context, &record_);
    record_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    caller_.held_bytes.reset();
    reception_->Leave(record_);
    self_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Submit() {
    const absl::Status status = Guarded([this] { return TrySubmit(); });
    if (!status.ok()) End(status);
  }

  absl::Status TrySubmit() {
    if (Cancelled()) return absl::CancelledError("the call was cancelled");
    const absl::Status read = reception_->Read(exchange_.incoming, &caller_, &record_);
    if (!read.ok()) return read;
    auto submitted = work_.submit(caller_, &ticket_);
    if (!submitted.ok()) return submitted.status();
    const std::shared_ptr<engine::TokenStream> stream = *std::move(submitted);
    {
      MutexLock lock(mutex_);
      stream_ = stream;
    }
    if (Cancelled()) stream->Cancel();
    // Runs on the engine thread.
    stream->SetWakeup([self = shared_from_this()] {
      self->work_.queue->Post(self->caller_.principal.key_name, [self] { self->Advance(); });
    });
    return absl::OkStatus();
  }

  void Advance() {
    std::shared_ptr<engine::TokenStream> stream;
    {
      MutexLock lock(mutex_);
      stream = stream_;
    }
    if (stream == nullptr) return;
    const absl::StatusOr<bool> answered = Guarded([&] { return TryAnswer(stream.get()); });
    if (answered.ok() && !*answered) return;
    if (!answered.ok()) {
      stream->SetWakeup(nullptr);  // the call ends here, even if the stream does not
      stream->Cancel();
    }
    End(answered.status());
  }

  // False while the stream goes on.
  absl::StatusOr<bool> TryAnswer(engine::TokenStream* stream) {
    engine::StreamBatch batch = stream->Read();
    ticket_.ChargeUsage(batch.usage);
    if (!batch.finished) return false;
    absl::Status status = batch.status;
    if (status.ok()) {
      status = work_.answer(caller_, std::move(batch));
    } else if (work_.failure) {
      status = work_.failure(status);
    }
    if (!status.ok()) return status;
    return true;
  }

  bool Cancelled() {
    MutexLock lock(mutex_);
    return cancelled_;
  }

  void End(absl::Status status) {
    if (status.ok()) status = Guarded([this] { return WriteResponse(exchange_, &record_); });
    const ::grpc::Status answer =
        reception_->NoteEnd(*exchange_.context, status, Cancelled(), &record_);
    AppendRefusal(status, &record_.details);
    ticket_.Leave();
    BeginWrite();
    Finish(answer);
  }

  const std::string& request_id() const override { return record_.request_id; }

  const UnaryExchange exchange_;
  Reception* const reception_;
  const StreamEndWork work_;
  const Clock::time_point begin_ = Clock::now();
  CallRecord record_;
  Caller caller_;
  access::Ticket ticket_;
  std::shared_ptr<StreamEndCall> self_;  // until OnDone

  Mutex mutex_;
  bool cancelled_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::shared_ptr<engine::TokenStream> stream_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace

::grpc::ServerUnaryReactor* AnswerAtStreamEnd(const UnaryExchange& exchange, Reception* reception,
                                              access::Area area, StreamEndWork work) {
  auto call = std::make_shared<StreamEndCall>(exchange, reception, std::move(work));
  call->Start(area);
  return call.get();
}

}  // namespace refrain::server::rpc
