#include "engine/token_stream.h"

#include <algorithm>
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

size_t BytesOf(const std::vector<TokenLogprob>& top) {
  constexpr size_t kBlockBytes = 16;  // around what is allocated
  return top.empty() ? 0 : kBlockBytes + top.size() * sizeof(TokenLogprob);
}

// About what it takes, but for its usage and status.
size_t BytesOf(const StreamBatch& batch) {
  size_t bytes = batch.tokens.size() * sizeof(TokenEvent) + batch.ends.size() * sizeof(ChoiceEnd) +
                 batch.text_ids.size() * sizeof(TokenId);
  for (const TokenEvent& event : batch.tokens) bytes += BytesOf(event.top);
  for (const ChoiceEnd& end : batch.ends) bytes += BytesOf(end.stop_top);
  return bytes;
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
  batch.reasoning = pending_.reasoning;
  batch.first_sampled = std::exchange(pending_.first_sampled, std::nullopt);
  end_was_read_ = pending_.finished;
  wakeup_is_due_ = false;
  read_bytes_ = std::exchange(waiting_bytes_, 0);
  if (memory_ != nullptr) memory_->Take(BytesLocked(), /*read=*/true);
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

void TokenStream::CountIn(std::unique_ptr<StreamMemory> memory) {
  StreamMemory* const counts = memory.get();
  bool crowded = false;
  {
    MutexLock lock(mutex_);
    memory_ = std::move(memory);
    crowded = counts->Take(BytesLocked(), /*read=*/false);
  }
  if (crowded) counts->MakeRoom();
}

void TokenStream::NoteReading() {
  MutexLock lock(mutex_);
  if (memory_ != nullptr) memory_->Take(BytesLocked(), /*read=*/true);
}

void TokenStream::Release() {
  MutexLock lock(mutex_);
  read_bytes_ = 0;
  if (memory_ != nullptr) memory_->Take(BytesLocked(), /*read=*/true);
}

void TokenStream::CountKept(size_t bytes) {
  StreamMemory* crowded = nullptr;
  {
    MutexLock lock(mutex_);
    kept_bytes_ += bytes;
    if (memory_ != nullptr && memory_->Take(BytesLocked(), /*read=*/false)) crowded = memory_.get();
  }
  if (crowded != nullptr) crowded->MakeRoom();
}

void TokenStream::UncountKept(size_t bytes) {
  MutexLock lock(mutex_);
  kept_bytes_ -= std::min(kept_bytes_, bytes);
  if (memory_ != nullptr) memory_->Take(BytesLocked(), /*read=*/true);
}

StreamBatch TokenStream::Cut(absl::Status status) {
  StreamBatch dropped;
  {
    MutexLock lock(mutex_);
    if (cut()) return dropped;
    std::swap(dropped, pending_);
    pending_.usage = dropped.usage;
    pending_.reasoning = dropped.reasoning;
    pending_.finished = true;
    pending_.status = std::move(status);
    waiting_bytes_ = 0;
    end_was_read_ = false;
    wakeup_is_due_ = false;
    cut_.store(true, std::memory_order_release);
  }
  readable_.NotifyAll();
  Cancel();
  MutexLock waking(wakeup_mutex_);
  if (wakeup_) wakeup_();
  return dropped;
}

bool TokenStream::Append(StreamBatch batch, StreamMemory** crowded) {
  const size_t bytes = BytesOf(batch);
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
  waiting_bytes_ += bytes;
  if (memory_ != nullptr && memory_->Take(BytesLocked(), /*read=*/false)) *crowded = memory_.get();
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
  StreamMemory* crowded = nullptr;
  if (Append(std::move(batch), &crowded)) {
    readable_.NotifyAll();
    WakeUp();
  }
  if (crowded != nullptr) crowded->MakeRoom();
}

void TokenStream::SetReasoningStart(ReasoningStart start) {
  MutexLock lock(mutex_);
  pending_.reasoning = start;
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
  // Let go of there, too: what counts the stream's memory is the stream's and keeps a weak
  // reference to the handle, which would keep what is captured.
  return std::shared_ptr<TokenStream>(raw, [stream = std::move(stream)](TokenStream*) mutable {
    stream->Cancel();
    stream.reset();
  });
}

}  // namespace refrain::engine
