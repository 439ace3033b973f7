#include "engine/encode_pool.h"

#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

// One prompt that is too much for the system's limits ends, and the others go on.
template <typename Work>
std::invoke_result_t<Work> WithMemory(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemoryForPrompt();
  }
}

}  // namespace

absl::Status DeadlineStatus(const EncodedRequest& request) {
  return absl::DeadlineExceededError(
      absl::StrCat("the request did not finish within its ", request.timeout_s, " s"));
}

void EncodePool::Lane::Push(Job job) {
  try {
    MutexLock lock(mutex);
    if (!stopped) {
      jobs.Push(job.tenant(), std::move(job));
      changed.NotifyOne();
      if (is_long || jobs.size() > idle_threads) crowded.NotifyOne();
      return;
    }
  } catch (const std::bad_alloc&) {
    return EndWithoutMemory(&job);
  }
  job.request->End(absl::CancelledError("the engine has stopped"));
}

std::optional<EncodePool::Job> EncodePool::Lane::WaitAndPop() {
  MutexLock lock(mutex);
  ++idle_threads;
  std::optional<Job> job;
  while (!stopped && !job.has_value()) {
    job = jobs.PopIf([idle = idle_threads, work = is_long ? &in_work : nullptr](
                         const std::string& tenant, const Job& waiting) {
      return work == nullptr || work->MayBegin(tenant, waiting, idle);
    });
    if (!job.has_value()) changed.Wait(mutex);
  }
  --idle_threads;
  if (job.has_value() && is_long) job->counted_for = in_work.BeginOrNull(*job);
  return job;
}

void EncodePool::Lane::Done(const std::string& tenant, bool large) {
  MutexLock lock(mutex);
  in_work.End(tenant, large);
  changed.NotifyAll();
}

bool EncodePool::InWork::MayBegin(const std::string& tenant, const Job& job,
                                  size_t idle_threads) const {
  const auto found = by_tenant_.find(tenant);
  const Texts own = found == by_tenant_.end() ? Texts() : found->second;
  if (own.all >= idle_threads) return false;
  return !job.is_large() || (own.large == 0 && large_ < kMostLargeTexts);
}

const std::string* EncodePool::InWork::BeginOrNull(const Job& job) {
  try {
    auto& [tenant, own] = *by_tenant_.try_emplace(job.tenant()).first;
    ++own.all;
    if (job.is_large()) {
      ++own.large;
      ++large_;
    }
    return &tenant;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void EncodePool::InWork::End(const std::string& tenant, bool large) {
  const auto own = by_tenant_.find(tenant);
  if (large) {
    --own->second.large;
    --large_;
  }
  if (--own->second.all == 0) by_tenant_.erase(own);
}

bool EncodePool::Lane::AnyWaits() {
  MutexLock lock(mutex);
  return !jobs.empty();
}

bool EncodePool::Lane::WaitUntilCrowded() {
  MutexLock lock(mutex);
  while (jobs.empty() && !stopped) crowded.Wait(mutex);
  return !stopped;
}

void EncodePool::Lane::Stop() {
  TenantQueue<Job> left;
  {
    MutexLock lock(mutex);
    stopped = true;
    left = std::exchange(jobs, {});
    changed.NotifyAll();
    crowded.NotifyAll();
  }
  while (const std::optional<Job> job = left.Pop()) {
    job->request->End(absl::CancelledError("the engine has stopped"));
  }
}

// Works for a slice, then rests while the engine is busy, then lets others have theirs. Ends the
// text when nobody wants it.
class EncodePool::LongTextPace : public EncodePace {
 public:
  // `tenant`, the request's, outlives it, which the request need not once it is encoded.
  LongTextPace(EncodePool& pool, const EncodedRequest& request, const std::string& tenant)
      : pool_(pool), request_(request), tenant_(tenant) {
    TakeTurn();
  }
  ~LongTextPace() override {
    if (has_turn_) pool_.turns_.Pass();
  }
  LongTextPace(const LongTextPace&) = delete;
  LongTextPace& operator=(const LongTextPace&) = delete;

 protected:
  void Checkpoint() override {
    if (stopped() || std::chrono::steady_clock::now() - begin_ < kSlice) return;
    if (IsOver()) {
      Stop();
      return;
    }
    if (pool_.engine_is_busy_()) {
      const bool more_wait = pool_.turns_.AnyWaits() || pool_.long_lane_.AnyWaits();
      std::this_thread::sleep_for(more_wait ? kShortRest : kRest);
    }
    pool_.turns_.Pass();
    TakeTurn();
  }

 private:
  bool IsOver() const { return !pool_.EndOf(request_).ok() || pool_.long_lane_.stopped; }
  void TakeTurn() {
    has_turn_ = false;  // also where Take throws
    has_turn_ = pool_.turns_.Take(
        tenant_, [this] { return IsOver(); }, kSweepPeriod);
    if (!has_turn_) Stop();
    begin_ = std::chrono::steady_clock::now();
  }

  EncodePool& pool_;
  const EncodedRequest& request_;
  const std::string& tenant_;
  bool has_turn_ = false;
  std::chrono::steady_clock::time_point begin_;
};

// Gives up a text of which more turns out to be new than is for the short lane: what was tokenized
// as a whole may be cut by an answer that was generated since (TurnSplicer).
class EncodePool::ShortTextPace : public EncodePace {
 public:
  void Begins(size_t bytes) override {
    new_bytes_ += bytes;
    if (new_bytes_ > kLongTextBytes) Stop();
  }

 protected:
  void Checkpoint() override {}

 private:
  size_t new_bytes_ = 0;
};

EncodePool::EncodePool(const PromptEncoder* encoder, const Clock* clock, int32_t threads, Sink sink,
                       std::function<bool()> engine_is_busy)
    : encoder_(encoder),
      clock_(clock),
      sink_(std::move(sink)),
      engine_is_busy_(std::move(engine_is_busy)) {
  NoMemoryForPrompt();  // made while there is memory
  try {
    for (int32_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Serve(&short_lane_); });
    }
    for (int i = 0; i < kLongTextThreads; ++i) {
      threads_.emplace_back([this] { Serve(&long_lane_); });
    }
    for (Lane* lane : {&short_lane_, &long_lane_}) {
      threads_.emplace_back([this, lane] { Sweep(lane); });
    }
  } catch (const std::system_error&) {
    Stop();
    throw;
  }
}

void EncodePool::Push(std::unique_ptr<EncodedRequest> request) {
  short_lane_.Push({.request = std::move(request), .rendered = false, .text = std::nullopt});
}

int32_t EncodePool::EndWaiting(const std::unordered_set<std::string>& tenants, uint64_t before,
                               const absl::Status& reason) {
  {
    // Before the lanes are looked through: what is in neither of them, as between rendering and
    // tokenizing, is seen by who works on it, or by the sweep.
    MutexLock lock(ends_mutex_);
    for (const std::string& tenant : tenants) ends_[tenant] = {.before = before, .reason = reason};
  }
  std::vector<Job> ended;
  for (Lane* lane : {&short_lane_, &long_lane_}) {
    MutexLock lock(lane->mutex);
    for (Job& job : lane->jobs.TakeIf([&](const Job& waiting) {
           return waiting.request->number < before && tenants.contains(waiting.tenant());
         })) {
      ended.push_back(std::move(job));
    }
  }
  for (const Job& job : ended) job.request->End(reason);
  return static_cast<int32_t>(ended.size());
}

void EncodePool::Stop() {
  short_lane_.Stop();
  long_lane_.Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void EncodePool::Serve(Lane* lane) {
  while (std::optional<Job> job = lane->WaitAndPop()) {
    if (lane->is_long) {
      WorkInSlices(*std::move(job));
    } else {
      Render(*std::move(job));
    }
  }
}

void EncodePool::WorkInSlices(Job job) {
  if (job.counted_for == nullptr) return EndWithoutMemory(&job);
  if (!job.rendered) return RenderInSlices(std::move(job));
  const std::string& tenant = *job.counted_for;
  const bool large = job.is_large();
  {
    std::optional<LongTextPace> pace;
    if (TakeTurn(&job, &pace)) Tokenize(std::move(job), &*pace);
  }
  long_lane_.Done(tenant, large);
}

void EncodePool::RenderInSlices(Job job) {
  bool is_rendered = false;
  {
    std::optional<LongTextPace> pace;
    is_rendered = TakeTurn(&job, &pace) && RenderText(&job, &*pace);
  }
  long_lane_.Done(*job.counted_for, /*large=*/false);
  if (is_rendered) long_lane_.Push(std::move(job));  // its text may be large
}

bool EncodePool::TakeTurn(Job* job, std::optional<LongTextPace>* pace) {
  try {
    pace->emplace(*this, *job->request, *job->counted_for);
    return true;
  } catch (const std::bad_alloc&) {
    EndWithoutMemory(job);
    return false;
  }
}

void EncodePool::EndWithoutMemory(Job* job) {
  job->text.reset();
  job->request->End(NoMemoryForPrompt());
}

void EncodePool::Sweep(Lane* lane) {
  while (lane->WaitUntilCrowded()) {
    std::vector<Job> ended;
    {
      MutexLock lock(lane->mutex);
      ended = lane->jobs.TakeIf([this](const Job& job) { return !EndOf(*job.request).ok(); });
    }
    for (const Job& job : ended) SkipEnded(*job.request);
    std::this_thread::sleep_for(kSweepPeriod);
  }
}

absl::Status EncodePool::EndOf(const EncodedRequest& request) const {
  if (request.stream->cancelled()) return absl::CancelledError("the request was cancelled");
  if (request.deadline.has_value() && clock_->Now() >= *request.deadline) {
    return DeadlineStatus(request);
  }
  MutexLock lock(ends_mutex_);
  const auto end = ends_.find(request.request.tenant);
  const bool has_ended = end != ends_.end() && request.number < end->second.before;
  return has_ended ? end->second.reason : absl::OkStatus();
}

bool EncodePool::SkipEnded(EncodedRequest& request) const {
  absl::Status end = EndOf(request);
  if (end.ok()) return false;
  request.End(std::move(end));
  return true;
}

bool EncodePool::RenderText(Job* job, EncodePace* pace) {
  EncodedRequest& request = *job->request;
  if (SkipEnded(request)) return false;
  absl::StatusOr<std::optional<PromptText>> text =
      WithMemory([&] { return encoder_->Render(&request, pace); });
  if (SkipEnded(request)) return false;  // which may have ended it half-way
  if (absl::IsCancelled(text.status())) {
    long_lane_.Push(std::move(*job));  // the pool stops, which ends it there
    return false;
  }
  if (!text.ok()) {
    request.End(text.status());
    return false;
  }
  job->text = *std::move(text);
  job->rendered = true;
  return true;
}

void EncodePool::Render(Job job) {
  if (PromptEncoder::IsLongToRender(job.request->request)) return long_lane_.Push(std::move(job));
  if (!RenderText(&job, nullptr)) return;
  const bool is_text = job.text.has_value();
  const bool is_long = is_text && job.text->text.size() > kLongTextBytes;
  const absl::StatusOr<bool> is_quick = WithMemory([&]() -> absl::StatusOr<bool> {
    return encoder_->FindConstraint(job.text, job.request.get()) &&
           (!is_long || encoder_->BytesToTokenize(*job.text, *job.request) <= kLongTextBytes);
  });
  if (!is_quick.ok()) return job.request->End(is_quick.status());
  if (!*is_quick) return long_lane_.Push(std::move(job));
  ShortTextPace pace;
  Tokenize(std::move(job), is_long ? &pace : nullptr);
}

void EncodePool::Tokenize(Job job, EncodePace* pace) {
  EncodedRequest& request = *job.request;
  if (SkipEnded(request)) return;
  if (request.only_tokenize) return TokenizeOnly(job, pace);
  absl::Status status = WithMemory([&] { return encoder_->Tokenize(job.text, &request, pace); });
  if (status.ok()) {
    status = request.ticket.SetTokens(static_cast<int64_t>(request.prompt.size()));
  }
  if (SkipEnded(request)) return;  // which may have ended it half-way
  // Given up by the short lane; or the pool stops, which ends it there.
  if (absl::IsCancelled(status)) return long_lane_.Push(std::move(job));
  if (!status.ok()) {
    request.End(std::move(status));
    return;
  }
  job.text.reset();
  request.request.prompt_hold.reset();
  sink_(std::move(job.request));
}

void EncodePool::TokenizeOnly(const Job& job, EncodePace* pace) {
  StreamBatch batch;
  absl::StatusOr<std::vector<TokenId>> ids =
      WithMemory([&] { return encoder_->TokenizeText(*job.text, pace); });
  if (ids.ok()) {
    batch.text_ids = *std::move(ids);
  } else {
    batch.status = ids.status();
  }
  batch.finished = true;
  if (SkipEnded(*job.request)) return;
  job.request->ticket.LeaveQueue();
  job.request->stream->Push(std::move(batch));
}

}  // namespace refrain::engine
