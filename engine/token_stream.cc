#include "engine/token_stream.h"

#include <iterator>

namespace refrain::engine {
namespace {

template <typename T>
void MoveBack(std::vector<T>& from, std::vector<T>& to) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
}

}  // namespace

bool TokenStream::ReadableLocked() const {
  return !pending_.tokens.empty() || !pending_.ends.empty() ||
         (pending_.finished && !end_was_read_);
}

StreamBatch TokenStream::Read() {
  MutexLock lock(mutex_);
  StreamBatch batch;
  batch.tokens = std::exchange(pending_.tokens, {});
  batch.ends = std::exchange(pending_.ends, {});
  batch.text_ids = std::exchange(pending_.text_ids, {});
  batch.finished = pending_.finished;
  batch.status = pending_.status;
  batch.usage = pending_.usage;
  batch.first_sampled = std::exchange(pending_.first_sampled, std::nullopt);
  end_was_read_ = pending_.finished;
  wakeup_is_due_ = false;
  return batch;
}

bool TokenStream::WaitUntil(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!ReadableLocked() && !end_was_read_) {
    if (!readable_.WaitUntil(mutex_, deadline)) return ReadableLocked();
  }
  return true;
}

void TokenStream::SetWakeup(std::function<void()> wakeup) {
  MutexLock waking(wakeup_mutex_);
  wakeup_ = std::move(wakeup);
  if (!wakeup_) return;
  bool readable = false;
  {
    MutexLock lock(mutex_);
    readable = ReadableLocked();
    wakeup_is_due_ = false;
  }
  if (readable) wakeup_();
}

void TokenStream::Cancel() {
  if (cancelled_.exchange(true, std::memory_order_acq_rel)) return;
  if (on_cancel_) on_cancel_();
}

bool TokenStream::Append(StreamBatch batch) {
  MutexLock lock(mutex_);
  if (pending_.finished) return false;
  const bool was_readable = ReadableLocked();
  MoveBack(batch.tokens, pending_.tokens);
  MoveBack(batch.ends, pending_.ends);
  MoveBack(batch.text_ids, pending_.text_ids);
  pending_.usage = batch.usage;
  if (!pending_.first_sampled.has_value()) pending_.first_sampled = batch.first_sampled;
  if (batch.finished) {
    pending_.finished = true;
    pending_.status = std::move(batch.status);
  }
  if (was_readable || !ReadableLocked()) return false;
  wakeup_is_due_ = true;
  return true;
}

// Unless somebody has read, or set another wakeup, since it became due.
void TokenStream::WakeUp() {
  MutexLock waking(wakeup_mutex_);
  if (!wakeup_) return;
  {
    MutexLock lock(mutex_);
    if (!std::exchange(wakeup_is_due_, false)) return;
  }
  wakeup_();
}

// Whoever is woken up goes on at once, on another processor: nothing that it needs is locked then.
void TokenStream::Push(StreamBatch batch) {
  if (!Append(std::move(batch))) return;
  readable_.NotifyAll();
  WakeUp();
}

void TokenStream::Finish(absl::Status status) {
  StreamBatch batch;
  batch.finished = true;
  batch.status = std::move(status);
  {
    MutexLock lock(mutex_);
    batch.usage = pending_.usage;
  }
  Push(std::move(batch));
}

std::shared_ptr<TokenStream> ConsumerHandle(std::shared_ptr<TokenStream> stream) {
  TokenStream* raw = stream.get();
  return std::shared_ptr<TokenStream>(
      raw, [stream = std::move(stream)](TokenStream*) { stream->Cancel(); });
}

}  // namespace refrain::engine
