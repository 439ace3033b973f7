#include "engine/engine_loop.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "engine/encode_pool.h"

namespace refrain::engine {
namespace {

// The entry of a sequence in a list sorted by id, or where it would stand.
template <typename List>
auto Find(List& list, SequenceId id) {
  return std::lower_bound(list.begin(), list.end(), id,
                          [](const auto& entry, SequenceId key) { return entry.sequence < key; });
}

kvcache::Namespace NamespaceOf(const Request& request) {
  return {.tenant = request.tenant, .cache_salt = request.cache_salt};
}

}  // namespace

EngineLoop::EngineLoop(const EngineLoopParts& parts, const SchedulerLimits& limits,
                       int32_t window_tokens)
    : parts_(parts),
      builder_(parts.cache, window_tokens),
      fresh_seeds_((uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {
  snapshot_.limits = limits;
  PublishStats();
}

EngineLoop::~EngineLoop() = default;

void EngineLoop::Run() {
  for (;;) {
    RequestQueue::Items items = HasWork() ? parts_.queue->Take() : parts_.queue->WaitAndTake();
    const bool closed = items.closed;
    TakeIn(std::move(items));
    if (closed) break;
    if (!Turn()) assert(parts_.cache->CheckInvariants().ok());
  }
  while (!in_flight_.empty()) CollectOldest();
  FinishAll(absl::CancelledError("the engine has stopped"));
  FlushChanged();
  PublishStats();
}

bool EngineLoop::Turn() {
  TakeIn(parts_.queue->Take());
  ExpireDeadlines();
  const bool launched = LaunchNext();
  const size_t most_in_flight = static_cast<size_t>(parts_.runner->max_in_flight());
  if (!in_flight_.empty() && (!launched || in_flight_.size() >= most_in_flight)) CollectOldest();
  FlushChanged();
  PublishStats();
  return HasWork();
}

EngineStats EngineLoop::stats() const {
  const int32_t queued = parts_.ledger->queued_requests();
  MutexLock lock(shared_mutex_);
  EngineStats stats = shared_stats_;
  stats.queued_requests = queued;
  return stats;
}

absl::Status EngineLoop::health() const {
  MutexLock lock(shared_mutex_);
  return health_;
}

// --- requests come and go ---

void EngineLoop::TakeIn(RequestQueue::Items items) {
  for (auto& request : items.requests) Accept(std::move(request));
  for (const uint64_t number : items.cancelled) {
    // One that is not there has ended, or is still being encoded and will be seen as cancelled.
    const auto found = requests_.find(number);
    if (found == requests_.end() || found->second->finished()) continue;
    FinishRequest(found->second.get(), absl::CancelledError("the request was cancelled"));
  }
}

void EngineLoop::Accept(std::unique_ptr<EncodedRequest> encoded) {
  if (encoded->stream->cancelled()) {
    encoded->stream->Finish(absl::CancelledError("the request was cancelled"));
    return;
  }
  if (absl::Status status = health(); !status.ok()) {
    encoded->stream->Finish(std::move(status));
    return;
  }
  const uint64_t number = encoded->number;
  if (encoded->deadline.has_value()) deadlines_.push({*encoded->deadline, number});
  auto request =
      std::make_unique<RunningRequest>(std::move(encoded), SequenceId{next_sequence_id_});
  next_sequence_id_ += request->choices().size();
  RunningRequest* const accepted = request.get();
  requests_.emplace(number, std::move(request));
  stats_.prompt_tokens_total += accepted->prompt_tokens();
  Wait(accepted->choices().front(), /*shared_tokens=*/0);
  if (accepted->prompt_tokens() == 1 && accepted->max_tokens() > 0) ReleaseParked(accepted);
}

void EngineLoop::ExpireDeadlines() {
  if (deadlines_.empty()) return;
  const Clock::TimePoint now = parts_.clock->Now();
  while (!deadlines_.empty() && deadlines_.top().first <= now) {
    const auto found = requests_.find(deadlines_.top().second);
    deadlines_.pop();
    if (found == requests_.end() || found->second->finished()) continue;
    FinishRequest(found->second.get(), DeadlineStatus(found->second->encoded()));
  }
}

void EngineLoop::Wait(const std::shared_ptr<SequenceState>& sequence, int32_t shared_tokens) {
  sequence->phase = SequencePhase::kWaiting;
  sequences_[sequence->id] = sequence;
  const WaitingEntry entry{.sequence = sequence->id,
                           .prefill_tokens = sequence->known_tokens(),
                           .shared_tokens = shared_tokens,
                           .priority = sequence->request->request().priority};
  snapshot_.waiting.insert(Find(snapshot_.waiting, sequence->id), entry);
}

void EngineLoop::RemoveWaiting(SequenceId id) {
  const auto entry = Find(snapshot_.waiting, id);
  assert(entry != snapshot_.waiting.end() && entry->sequence == id);
  snapshot_.waiting.erase(entry);
}

void EngineLoop::Withdraw(SequenceState* sequence) {
  if (sequence->phase == SequencePhase::kWaiting) {
    RemoveWaiting(sequence->id);
  } else if (sequence->phase == SequencePhase::kRunning) {
    snapshot_.running.erase(Find(snapshot_.running, sequence->id));
    parts_.cache->Leave(sequence->id);
  }
}

void EngineLoop::RememberTurn(const SequenceState& sequence) {
  const std::optional<TurnKey>& turn = sequence.request->encoded().turn;
  if (parts_.turns != nullptr && turn.has_value()) {
    parts_.turns->Remember(*turn, sequence.generated);
  }
}

void EngineLoop::EndChoice(SequenceState* sequence, ChoiceEnd end) {
  RunningRequest* const request = sequence->request;
  RememberTurn(*sequence);
  Withdraw(sequence);
  request->End(sequence, std::move(end));
  MarkChanged(request);
  sequences_.erase(sequence->id);
}

void EngineLoop::FinishRequest(RunningRequest* request, absl::Status status) {
  for (const auto& choice : request->choices()) {
    if (choice->phase == SequencePhase::kEnded) continue;
    RememberTurn(*choice);
    Withdraw(choice.get());
    sequences_.erase(choice->id);
  }
  request->Finish(std::move(status));
  MarkChanged(request);
}

void EngineLoop::FinishAll(const absl::Status& status) {
  for (const auto& [number, request] : requests_) {
    if (!request->finished()) FinishRequest(request.get(), status);
  }
}

void EngineLoop::Die(absl::Status status) {
  parts_.ledger->Close(
      absl::UnavailableError(absl::StrCat("the engine is dead: ", status.message())));
  FinishAll(status);
  MutexLock lock(shared_mutex_);
  if (health_.ok()) health_ = std::move(status);
}

void EngineLoop::FlushChanged() {
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const uint64_t number : changed_) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) continue;
    found->second->Flush();
    if (found->second->finished()) requests_.erase(found);
  }
  changed_.clear();
}

// --- plan, commit, launch ---

void EngineLoop::RefreshSnapshot() {
  const kvcache::CacheManager& cache = *parts_.cache;
  snapshot_.free_chunks = cache.stats().available_chunks();
  for (RunningEntry& entry : snapshot_.running) {
    const SequenceState& sequence = *sequences_.at(entry.sequence);
    entry.appended_tokens = cache.appended_tokens(entry.sequence);
    entry.reserved_tokens = cache.reserved_tokens(entry.sequence);
    entry.runnable_tokens = sequence.RunnableTokens(entry.appended_tokens);
    entry.decoding =
        entry.appended_tokens >= sequence.request->prompt_tokens() && entry.runnable_tokens <= 1;
    entry.exclusive_chunks = sequence.request->choices().size() == 1
                                 ? entry.reserved_tokens / snapshot_.limits.chunk_tokens
                                 : cache.ExclusiveChunks(entry.sequence);
  }
}

bool EngineLoop::LaunchNext() {
  if (snapshot_.running.empty() && snapshot_.waiting.empty()) return false;
  RefreshSnapshot();
  const StepPlan plan = Plan(snapshot_);
  if (plan.empty() && in_flight_.empty()) {
    Die(absl::InternalError(absl::StrCat("the scheduler found nothing to do for ",
                                         snapshot_.running.size(), " running and ",
                                         snapshot_.waiting.size(), " waiting sequences")));
    return false;
  }
  for (const SequenceId id : plan.preempt) Preempt(sequences_.at(id).get());
  for (const SequenceId id : plan.admit) {
    if (!Admit(sequences_.at(id))) return false;
  }
  builder_.Begin();
  for (const StepWork& work : plan.work) {
    const auto& sequence = sequences_.at(work.sequence);
    if (sequence->phase != SequencePhase::kRunning) continue;
    // A fork may have found more of the prompt than was planned with.
    const int32_t tokens = std::min(
        work.num_tokens, sequence->RunnableTokens(parts_.cache->appended_tokens(work.sequence)));
    if (tokens <= 0 || !parts_.cache->Reserve(work.sequence, tokens).ok()) continue;
    builder_.Add(sequence, tokens);
  }
  if (builder_.empty()) return false;
  const StepHandle handle = parts_.runner->Launch(builder_.Finish());
  in_flight_.push_back(builder_.TakeStep());
  in_flight_.back().handle = handle;
  ++stats_.steps_total;
  return true;
}

void EngineLoop::Preempt(SequenceState* sequence) {
  Withdraw(sequence);
  Wait(sequences_.at(sequence->id), /*shared_tokens=*/0);
  ++stats_.preemptions_total;
}

bool EngineLoop::Admit(const std::shared_ptr<SequenceState>& sequence) {
  const absl::Status status = JoinCache(sequence.get());
  if (absl::IsResourceExhausted(status)) return true;  // waits on
  if (!status.ok()) {
    Die(status);
    return false;
  }
  assert(sequence->pending_samples == 0);
  RemoveWaiting(sequence->id);
  sequence->phase = SequencePhase::kRunning;
  RunningRequest& request = *sequence->request;
  request.Start();
  request.MakeSampler(sequence.get(), fresh_seeds_());
  MarkChanged(&request);
  snapshot_.running.insert(
      Find(snapshot_.running, sequence->id),
      RunningEntry{.sequence = sequence->id, .priority = request.request().priority});
  return true;
}

absl::Status EngineLoop::JoinCache(SequenceState* sequence) {
  kvcache::CacheManager& cache = *parts_.cache;
  const RunningRequest& request = *sequence->request;
  // The last prompt token is computed again: its row is where the first choice is made.
  const int32_t wanted_tokens = request.prompt_tokens() - 1;
  for (const auto& other : request.choices()) {
    if (wanted_tokens == 0 || other->phase != SequencePhase::kRunning) continue;
    if (cache.published_tokens(other->id) < wanted_tokens) continue;
    return cache.Fork(sequence->id, other->id, wanted_tokens).status();
  }
  const kvcache::Namespace name_space = NamespaceOf(request.request());
  const kvcache::MatchResult match = cache.Match(
      name_space, {.ids = std::span(request.prompt()).first(static_cast<size_t>(wanted_tokens))});
  return cache.Join(sequence->id, name_space, match).status();
}

// --- collect ---

void EngineLoop::CollectOldest() {
  const LaunchedStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  absl::StatusOr<StepResult> result = parts_.runner->Collect(step.handle);
  for (const LaunchedStep::Logits& wanted : step.logits) {
    if (!wanted.prompt_index.has_value()) --wanted.sequence->pending_samples;
  }
  if (result.ok() && result->rows.size() != step.logits.size()) {
    result = absl::InternalError(absl::StrCat("the model runner returned ", result->rows.size(),
                                              " rows of logits for ", step.logits.size()));
  }
  if (!result.ok()) {
    for (const LaunchedStep::Work& work : step.work) {
      if (work.sequence->phase == SequencePhase::kEnded) continue;
      FinishRequest(work.sequence->request, result.status());
    }
    if (absl::IsInternal(result.status())) Die(result.status());
    return;
  }
  Publish(step);
  for (size_t i = 0; i < step.logits.size(); ++i) Apply(step.logits[i], std::move(result->rows[i]));
  EndPromptOnly(step);
}

void EngineLoop::EndPromptOnly(const LaunchedStep& step) {
  for (const LaunchedStep::Work& work : step.work) {
    if (work.sequence->phase != SequencePhase::kRunning) continue;
    const RunningRequest& request = *work.sequence->request;
    if (request.max_tokens() > 0 ||
        parts_.cache->published_tokens(work.sequence->id) < request.prompt_tokens()) {
      continue;
    }
    for (const auto& choice : request.choices()) {
      EndChoice(choice.get(), {.reason = FinishReason::kLength});
    }
  }
}

void EngineLoop::Publish(const LaunchedStep& step) {
  std::vector<TokenId> ids;
  for (const LaunchedStep::Work& work : step.work) {
    SequenceState* const sequence = work.sequence.get();
    // One that was preempted has given up its chunks; it cannot run again before this step is
    // collected (at most two are in flight, and a plan that preempts admits nothing).
    if (sequence->phase != SequencePhase::kRunning) continue;
    ids.clear();
    RunningRequest* const request = sequence->request;
    const int32_t prompt_tokens = request->prompt_tokens();
    const int32_t end = work.first_token + work.num_tokens;
    for (int32_t i = work.first_token; i < end; ++i) ids.push_back(sequence->token(i));
    parts_.cache->Publish(sequence->id, ids);
    stats_.computed_prompt_tokens_total +=
        std::max(0, std::min(end, prompt_tokens) - work.first_token);
    if (request->max_tokens() == 0) continue;  // its other choices never run
    if (work.first_token < prompt_tokens && end >= prompt_tokens - 1) ReleaseParked(request);
  }
}

void EngineLoop::ReleaseParked(RunningRequest* request) {
  for (const auto& choice : request->choices()) {
    if (choice->phase == SequencePhase::kParked) Wait(choice, request->prompt_tokens() - 1);
  }
}

void EngineLoop::Apply(const LaunchedStep::Logits& wanted, SampledToken sampled) {
  SequenceState* const sequence = wanted.sequence.get();
  if (sequence->phase == SequencePhase::kEnded) return;  // a stop was seen one step late
  RunningRequest* const request = sequence->request;
  MarkChanged(request);
  if (wanted.prompt_index.has_value()) {
    request->AddPromptToken(*wanted.prompt_index, sampled);
    return;
  }
  ++stats_.generated_tokens_total;
  const std::string_view bytes = parts_.tokenizer->TokenBytes(sampled.token);
  std::optional<ChoiceEnd> end = request->AddToken(sequence, std::move(sampled), bytes);
  if (end.has_value()) {
    EndChoice(sequence, *std::move(end));
  } else if (sequence->phase == SequencePhase::kWaiting) {
    Find(snapshot_.waiting, sequence->id)->prefill_tokens = sequence->known_tokens();
  }
}

void EngineLoop::PublishStats() {
  const kvcache::CacheStats cache = parts_.cache->stats();
  stats_.running_sequences = static_cast<int32_t>(snapshot_.running.size());
  stats_.kv_capacity_tokens = cache.capacity_tokens();
  stats_.kv_used_chunks = cache.used_chunks;
  stats_.kv_cached_chunks = cache.cached_chunks;
  stats_.kv_free_chunks = cache.free_chunks;
  MutexLock lock(shared_mutex_);
  shared_stats_ = stats_;
}

}  // namespace refrain::engine
