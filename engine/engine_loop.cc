#include "engine/engine_loop.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/encode_pool.h"

namespace refrain::engine {
namespace {

double SecondsBetween(Clock::TimePoint begin, Clock::TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Walks the whole tree: too long for a server that serves, so only builds for finding faults do it.
void CheckWhenIdle(const kvcache::CacheManager& cache) {
#if defined(REFRAIN_CHECK_WHEN_IDLE)
  assert(cache.CheckInvariants().ok());
#endif
}

// Whether the only sequence that runs lacks a chunk: nobody can give it one.
bool IsStuck(const SequenceState& alone, kvcache::CacheManager* cache) {
  return !alone.replaying() && alone.RunnableTokens(cache->appended_tokens(alone.id)) > 0 &&
         absl::IsResourceExhausted(cache->Reserve(alone.id, 1));
}

// Of all sequences of its request.
bool RunsAlone(const SequenceState& sequence) {
  return std::ranges::none_of(sequence.request->choices(), [&](const auto& other) {
    return other.get() != &sequence && other->phase == SequencePhase::kRunning;
  });
}

// The logits gave nothing to choose from, or no log-probability that could be told or compared: the
// greatest is infinite, or all are NaN.
bool IsCorrupted(const SampledToken& sampled) {
  return sampled.token == kNoToken ||
         (sampled.logprob.has_value() && std::isnan(sampled.logprob->logprob));
}

absl::Status StuckStatus(const std::string& field) {
  return absl::InvalidArgumentError(absl::StrCat(
      field,
      ": the output has come to where no token can follow: the vocabulary has none that fits, or "
      "the form is so ambiguous that it may be in more than ",
      GrammarMatcher::kMostPlaces, " places of it"));
}

}  // namespace

EngineLoop::EngineLoop(const EngineLoopParts& parts, const LoopOptions& options)
    : parts_(parts),
      options_(options),
      prefix_keys_(options.scheduler.chunk_tokens),
      builder_(parts.cache, options.window_tokens),
      observer_(parts.observer, parts.clock, options.scheduler.chunk_tokens),
      fresh_seeds_((uint64_t{std::random_device{}()} << 32) | std::random_device{}()),
      watch_(parts.clock, options.stall_s) {
  snapshot_.limits = options.scheduler;
  PublishStats();
}

EngineLoop::~EngineLoop() = default;

void EngineLoop::Run() {
  for (;;) {
    RequestQueue::Items items = HasWork() ? parts_.queue->Take() : Sleep();
    const bool closed = items.closed;
    TakeIn(std::move(items));
    if (closed) break;
    if (!Turn()) CheckWhenIdle(*parts_.cache);
  }
  while (!in_flight_.empty()) CollectOldest();
  FinishAll(absl::CancelledError("the engine has stopped"));
  FlushChanged();
  PublishStats();
  watch_.Rests();
}

RequestQueue::Items EngineLoop::Sleep() {
  PagesAhead* const pages = parts_.pages_ahead;
  if (pages != nullptr) pages->EngineIsIdle(parts_.cache->stats().touched_chunks);
  RequestQueue::Items items = parts_.queue->WaitAndTake();
  watch_.Works();
  return items;
}

void EngineLoop::TouchAhead() {
  PagesAhead* const pages = parts_.pages_ahead;
  if (pages == nullptr) return;
  pages->StepBegins(parts_.cache->stats().touched_chunks,
                    static_cast<int32_t>(snapshot_.running.size()));
}

bool EngineLoop::Turn() {
  watch_.Works();
  const Clock::TimePoint begin = parts_.clock->Now();
  runner_seconds_ = 0;
  TakeIn(parts_.queue->Take());
  ExpireDeadlines();
  const bool launched = LaunchNext();
  planning_seconds_ = SecondsBetween(begin, parts_.clock->Now()) - runner_seconds_;
  const size_t most_in_flight = static_cast<size_t>(parts_.runner->max_in_flight());
  if (!in_flight_.empty() && (!launched || in_flight_.size() >= most_in_flight)) CollectOldest();
  FlushChanged();
  if (launched) {
    const double turn_seconds = SecondsBetween(begin, parts_.clock->Now());
    stats_.turn_seconds_total += turn_seconds;
    stats_.scheduling_seconds_total += turn_seconds - runner_seconds_;
    observer_.TurnEnds(turn_seconds, runner_seconds_, planning_seconds_);
  }
  PublishStats();
  if (!HasWork()) {
    watch_.Rests();
    return false;
  }
  watch_.Works();
  return true;
}

EngineStats EngineLoop::stats() const {
  const int32_t waiting = parts_.ledger->waiting_requests();
  const double until_idle_s = parts_.ledger->SecondsUntilEmpty();
  MutexLock lock(shared_mutex_);
  EngineStats stats = shared_stats_;
  stats.queued_requests = waiting;
  stats.waiting_sequences += waiting;
  stats.until_idle_s = until_idle_s;
  return stats;
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
  for (TenantEnd& end : items.tenant_ends) EndWaiting(std::move(end));
  for (const CacheErrand& errand : items.errands) errand(parts_.cache);
}

void EngineLoop::Accept(std::unique_ptr<EncodedRequest> encoded) {
  if (encoded->stream->cancelled()) {
    encoded->End(absl::CancelledError("the request was cancelled"));
    return;
  }
  if (absl::Status status = DeathReason(); !status.ok()) {
    encoded->End(std::move(status));
    return;
  }
  const uint64_t number = encoded->number;
  const auto end = tenant_ends_.find(encoded->request.tenant);
  if (end != tenant_ends_.end() && number < end->second.before) {
    encoded->End(end->second.reason);
    return;
  }
  deadlines_.Add(encoded->deadline, number);
  PromptKeys keys;
  if (parts_.cache->options().prefix_cache) {
    keys = prefix_keys_.OfRequest(NamespaceOf(encoded->request), encoded->prompt);
  } else if (encoded->request.sequences() > 1) {
    keys = {.all = {next_sequence_id_}, .whole_chunks = 1};  // no other request's
  }
  auto request = std::make_unique<RunningRequest>(std::move(encoded), SequenceId{next_sequence_id_},
                                                  std::move(keys));
  next_sequence_id_ += request->reserved_ids();
  RunningRequest* const accepted = request.get();
  requests_.emplace(number, std::move(request));
  stats_.prompt_tokens_total += accepted->prompt_tokens();
  accepted->set_tenant(
      shares_.Enter(accepted->request().tenant, accepted->request().tenant_weight));
  counts_.Arrived(*accepted);
  observer_.Arrived(accepted);
  Wait(accepted->choices().front());
}

void EngineLoop::ExpireDeadlines() {
  if (deadlines_.empty()) return;
  const Clock::TimePoint now = parts_.clock->Now();
  while (const std::optional<uint64_t> number = deadlines_.TakeExpired(now)) {
    const auto found = requests_.find(*number);
    if (found == requests_.end() || found->second->finished()) continue;
    FinishRequest(found->second.get(), DeadlineStatus(found->second->encoded()));
  }
}

void EngineLoop::Wait(const std::shared_ptr<SequenceState>& sequence) {
  // A choice waits since its request came, though it was parked: who is older has waited longer.
  if (!sequence->waits_since_step.has_value()) {
    sequence->waits_since_step =
        sequence->request->choices().front()->waits_since_step.value_or(snapshot_.step);
  }
  sequence->phase = SequencePhase::kWaiting;
  sequences_[sequence->id] = sequence;
  snapshot_.waiting.insert(FindEntry(snapshot_.waiting, sequence->id),
                           WaitingEntry{.sequence = sequence->id,
                                        .priority = sequence->request->request().priority,
                                        .since_step = *sequence->waits_since_step,
                                        .tenant = sequence->request->tenant()});
  Look(sequence.get());
}

void EngineLoop::RemoveWaiting(SequenceId id) {
  const auto entry = FindEntry(snapshot_.waiting, id);
  assert(entry != snapshot_.waiting.end() && entry->sequence == id);
  snapshot_.waiting.erase(entry);
  parts_.cache->StopAwaiting(id);
  lines_.Remove(id);
}

void EngineLoop::RememberTurn(const RunningRequest& request,
                              const std::vector<TokenId>& generated) {
  const std::optional<TurnKey>& turn = request.encoded().turn;
  if (parts_.turns != nullptr && turn.has_value()) parts_.turns->Remember(*turn, generated);
  if (generated.empty() || !parts_.cache->options().prefix_cache) return;
  const std::span<const TokenId> computed(generated.begin(), generated.end() - 1);
  seen_.Add(prefix_keys_.OfAnswer(NamespaceOf(request.request()), request.prompt_keys().whole(),
                                  request.prompt(), computed));
}

void EngineLoop::RememberPrompt(const SequenceState& sequence) {
  // Its other choices have the same, and each its own copy of the chunk in which it ends.
  if (!sequence.request->IsFirstWithPrompt(sequence.id)) return;
  if (parts_.cache->options().prefix_cache) seen_.Add(sequence.request->prompt_keys().whole());
  const Request& request = sequence.request->request();
  if (request.keep_cached) parts_.cache->Retain(sequence.id, request.tenant);
}

void EngineLoop::FlushChanged() {
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const uint64_t number : changed_) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) continue;
    RunningRequest& request = *found->second;
    StreamBatch output = request.TakeOutput(collected_);
    if (!request.finished()) {
      request.Send(std::move(output));
      continue;
    }
    // Counted as ended before its consumer hears of it, who may ask for the counts or come again.
    deadlines_.Remove(request.encoded().deadline, number);
    shares_.Leave(request.tenant());
    counts_.Ends(request);
    observer_.Ended(request);
    request.Send(std::move(output));
    requests_.erase(found);
  }
  changed_.clear();
}

// --- plan, commit, launch ---

bool EngineLoop::LaunchNext() {
  if (snapshot_.running.empty() && snapshot_.waiting.empty()) return false;
  RefreshWaiting();
  const bool full =
      static_cast<int32_t>(snapshot_.running.size()) >= snapshot_.limits.max_sequences;
  if (full && beams_run_) ParkDeliveredBeams(/*only_for_siblings=*/true);
  RefreshSnapshot();
  observer_.PlanBegins();
  const StepPlan plan = options_.planner(snapshot_);
  observer_.PlanEnds();
  if (plan.empty() && in_flight_.empty()) {
    if (!ParkDeliveredBeams(/*only_for_siblings=*/false)) BreakDeadlock();
    return false;
  }
  // What is in flight of the last running sequence would be lost with it, and computed again.
  if (!plan.preempt.empty() && plan.preempt.size() == snapshot_.running.size() &&
      !in_flight_.empty()) {
    return false;
  }
  // To run again would take it no further, and in between it would take others' chunks.
  if (snapshot_.running.size() == 1 && !plan.preempt.empty() &&
      IsStuck(*sequences_.at(plan.preempt.front()), parts_.cache)) {
    BreakDeadlock();
    return false;
  }
  for (const SequenceId id : plan.preempt) Preempt(sequences_.at(id).get());
  bool found_held = false;
  for (const SequenceId id : plan.admit) {
    if (!Admit(sequences_.at(id))) return false;
    found_held |= pending_.held(id);
  }
  // Those that wait would do so until other requests end.
  if (beams_run_) ParkDeliveredBeams(/*only_for_siblings=*/true);
  builder_.Begin();
  for (const StepWork& work : plan.work) {
    const auto& sequence = sequences_.at(work.sequence);
    if (sequence->phase != SequencePhase::kRunning) continue;
    sequence->SkipReplayed();
    // A fork may have found more of the prompt than was planned with.
    const int32_t tokens = std::min(
        work.num_tokens, sequence->RunnableTokens(parts_.cache->appended_tokens(work.sequence)));
    if (tokens <= 0) continue;
    // Replayed tokens have their places.
    const absl::Status reserved =
        sequence->replaying() ? absl::OkStatus() : parts_.cache->Reserve(work.sequence, tokens);
    if (absl::IsResourceExhausted(reserved)) continue;  // found less in the cache than planned
    if (!reserved.ok()) {
      Die(reserved);
      return false;
    }
    builder_.Add(sequence, tokens);
    shares_.Charge(FindEntry(snapshot_.running, work.sequence)->turn_of(), tokens);
  }
  TellShares();
  if (builder_.empty()) {
    // What the cache gave may differ from what was planned with; the next plan sees it, and what
    // those have left that were preempted. One that has turned out to be held is planned with no
    // more: whoever it waits for has its rows then.
    constexpr int kMostFruitlessPlans = 2;
    const bool changed = found_held || !plan.preempt.empty();
    if (in_flight_.empty() && !changed && ++fruitless_plans_ >= kMostFruitlessPlans) {
      BreakDeadlock();
    }
    return false;
  }
  fruitless_plans_ = 0;
  TouchAhead();
  const StepBatch& batch = builder_.Finish();
  const Clock::TimePoint launch = parts_.clock->Now();
  const StepHandle handle = parts_.runner->Launch(batch);
  runner_seconds_ += SecondsBetween(launch, parts_.clock->Now());
  in_flight_.push_back(builder_.TakeStep());
  in_flight_.back().handle = handle;
  observer_.Launched(in_flight_.back(), batch);
  ++stats_.steps_total;
  return true;
}

void EngineLoop::Preempt(SequenceState* sequence) {
  ++stats_.preemptions_total;
  const BeamGroup* const beams = sequence->request->beams();
  if (beams != nullptr && beams->delivered(sequence->choice)) return Park(sequence);
  Withdraw(sequence);
  Wait(sequences_.at(sequence->id));
}

bool EngineLoop::Admit(const std::shared_ptr<SequenceState>& sequence) {
  Look(sequence.get());
  if (pending_.held(sequence->id)) return true;  // another admitted one computes its next chunk
  const bool goes_on = parts_.cache->GoesOn(sequence->match);
  const absl::Status status = JoinCache(sequence.get());
  if (absl::IsResourceExhausted(status)) return true;  // waits on
  if (!status.ok()) {
    Die(status);
    return false;
  }
  StartRunning(sequence, goes_on);
  return true;
}

void EngineLoop::StartRunning(const std::shared_ptr<SequenceState>& sequence, bool goes_on) {
  assert(sequence->pending_samples == 0);
  RemoveWaiting(sequence->id);
  pending_.Forget(sequence->id);
  sequence->phase = SequencePhase::kRunning;
  RunningRequest& request = *sequence->request;
  const int32_t found_tokens = parts_.cache->published_tokens(sequence->id);
  sequence->replay_end = std::min(found_tokens, request.prompt_tokens() - 1);
  sequence->replay_next = std::min(request.FirstWantedPromptRow(), sequence->replay_end);
  sequence->produces = false;
  StartProducing(sequence.get());
  counts_.Starts(request);
  request.Start();
  request.MakeSampler(sequence.get(), fresh_seeds_());
  MarkChanged(&request);
  if (found_tokens < request.prompt_tokens() - 1 && RunsAlone(*sequence)) {
    request.ForgetFirstWithPrompt();  // whoever had the prompt, it is computed again
  }
  const int32_t cached_tokens = std::min(found_tokens, request.prompt_tokens());
  const bool prefix_cache = parts_.cache->options().prefix_cache;
  const int32_t written_tokens = prefix_cache ? request.prompt_tokens() - cached_tokens : 0;
  if (request.SetCachedTokens(cached_tokens, written_tokens)) {
    request.SetCacheMiss(ExplainMiss(seen_, {.keys = request.prompt_keys().whole(),
                                             .chunk_tokens = snapshot_.limits.chunk_tokens,
                                             .prompt_tokens = request.prompt_tokens(),
                                             .cached_tokens = found_tokens,
                                             .goes_on = goes_on,
                                             .truncated = request.encoded().truncated,
                                             .prefix_cache = prefix_cache}));
    stats_.cached_prompt_tokens_total += cached_tokens;
    observer_.Started(&request);
  }
  snapshot_.running.insert(FindEntry(snapshot_.running, sequence->id),
                           RunningEntry{.sequence = sequence->id,
                                        .turn_begin = sequence->known_tokens(),
                                        .priority = request.request().priority,
                                        .tenant = request.tenant()});
  if (found_tokens >= request.prompt_tokens() - 1) ReleaseParked(&request);
}

absl::Status EngineLoop::JoinCache(SequenceState* sequence) {
  const RunningRequest& request = *sequence->request;
  if (const SequenceState* source = ForkSource(*sequence); source != nullptr) {
    return parts_.cache->Fork(sequence->id, source->id, request.prompt_tokens() - 1).status();
  }
  // A request is counted once, whichever of its sequences come and go behind the first.
  const auto join =
      request.has_run() ? &kvcache::CacheManager::Rejoin : &kvcache::CacheManager::Join;
  return (parts_.cache->*join)(sequence->id, NamespaceOf(request.request()), sequence->match,
                               request.prompt_tokens())
      .status();
}

// --- collect ---

void EngineLoop::CollectOldest() {
  const LaunchedStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  absl::StatusOr<StepResult> result = Collect(step);
  if (result.ok() && result->rows.size() != step.logits.size()) {
    result = absl::InternalError(absl::StrCat("the model runner returned ", result->rows.size(),
                                              " rows of logits for ", step.logits.size()));
  }
  if (!result.ok()) return HandleFailure(step, result.status());
  backoff_.Ran(step.num_tokens(), options_.scheduler.step_token_budget);
  const Clock::TimePoint publish = parts_.clock->Now();
  Publish(step);
  planning_seconds_ += SecondsBetween(publish, parts_.clock->Now());
  for (size_t i = 0; i < step.logits.size(); ++i) Apply(step.logits[i], std::move(result->rows[i]));
  EndPromptOnly(step);
}

void EngineLoop::EndPromptOnly(const LaunchedStep& step) {
  for (const LaunchedStep::Work& work : step.work) {
    if (work.sequence->phase != SequencePhase::kRunning) continue;
    RunningRequest& request = *work.sequence->request;
    if (request.max_tokens() > 0 ||
        parts_.cache->published_tokens(work.sequence->id) < request.prompt_tokens()) {
      continue;
    }
    if (request.beams() != nullptr) {
      EndBeams(&request);
      continue;
    }
    request.MakeChoices();
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
    stats_.computed_prompt_tokens_total +=
        std::max(0, std::min(end, prompt_tokens) - work.first_token);
    if (work.first_token < prompt_tokens) {
      request->CountPrompt(work.first_token, end);
      MarkChanged(request);  // before there are tokens too: who goes away pays for what there was
    }
    if (work.replayed) continue;
    for (int32_t i = work.first_token; i < end; ++i) ids.push_back(sequence->token(i));
    parts_.cache->Publish(sequence->id, ids);
    std::vector<PendingPrefixes::Released> released;
    pending_.Published(sequence->id, PublishedKeys(*sequence, end), &released);
    Release(released, /*in_use=*/true);
    if (work.first_token < prompt_tokens && end >= prompt_tokens - 1) {
      RememberPrompt(*sequence);
      ReleaseParked(request);
    }
  }
}

void EngineLoop::ReleaseParked(RunningRequest* request) {
  // Of a request for its prompt alone the other choices never run; beams do not park for it.
  if (request->max_tokens() == 0 || request->beams() != nullptr) return;
  counts_.MakesChoices(*request);
  request->MakeChoices();
  for (const auto& choice : request->choices()) {
    if (choice->phase == SequencePhase::kParked) Wait(choice);
  }
}

void EngineLoop::Apply(const LaunchedStep::Logits& wanted, SampledToken sampled) {
  SequenceState* const sequence = wanted.sequence.get();
  if (sequence->phase == SequencePhase::kEnded) return;  // a stop was seen one step late
  RunningRequest* const request = sequence->request;
  MarkChanged(request);
  if (IsCorrupted(sampled)) {
    ++stats_.corrupted_requests_total;
    // Its K and V may be the cause, and are not offered to others, nor to the next try.
    return FinishRequest(request,
                         absl::InternalError(absl::StrCat(
                             "behind ", wanted.prompt_index.value_or(sequence->known_tokens()),
                             " tokens the logits are no finite numbers: some value is too "
                             "large for its type, such as that of kv_cache.dtype")),
                         kvcache::kForgetAll);
  }
  if (wanted.prompt_index.has_value()) {
    request->AddPromptToken(*wanted.prompt_index, sampled);
    return;
  }
  ++stats_.generated_tokens_total;
  observer_.Token(request, sequence->choice);
  if (request->beams() != nullptr) return ApplyToBeam(sequence, std::move(sampled));
  const bool hidden =
      request->request().stop.skip_special && parts_.tokenizer->IsControl(sampled.token);
  const std::string_view shown =
      hidden ? std::string_view() : parts_.tokenizer->TokenBytes(sampled.token);
  const OutputState output = sampled.output;
  std::optional<ChoiceEnd> end = request->AddToken(sequence, std::move(sampled), shown);
  if (end.has_value()) {
    EndChoice(sequence, *std::move(end));
  } else if (output == OutputState::kStuck) {
    FinishRequest(request, StuckStatus(request->request().format->field));
  } else if (sequence->phase == SequencePhase::kWaiting) {
    Look(sequence);
  }
}

void EngineLoop::PublishStats() {
  const kvcache::CacheStats cache = parts_.cache->stats();
  stats_.running_sequences = static_cast<int32_t>(snapshot_.running.size());
  stats_.kv_capacity_tokens = cache.capacity_tokens();
  stats_.kv_used_chunks = cache.used_chunks;
  stats_.kv_cached_chunks = cache.cached_chunks;
  stats_.kv_free_chunks = cache.free_chunks;
  stats_.kv_logical_tokens = cache.logical_tokens;
  stats_.kv_evicted_chunks_total = cache.evicted_chunks_total;
  stats_.kv_copied_chunks_total = cache.copied_chunks_total;
  stats_.held_sequences = static_cast<int32_t>(pending_.held_count());
  // But for the first ones of requests that have not run, which the ledger knows as of now.
  stats_.waiting_sequences = static_cast<int32_t>(snapshot_.waiting.size()) +
                             counts_.choices_to_come() - counts_.unstarted_requests();
  stats_.deferred_sequences = stats_.held_sequences + counts_.held_choices();
  const kernels::DeviceTimes device = parts_.runner->device_times();
  stats_.device_step_seconds_total = device.step_seconds;
  stats_.device_idle_seconds_total = device.idle_seconds;
  stats_.device_unrecorded_steps_total = device.unrecorded_steps;
  MutexLock lock(shared_mutex_);
  shared_stats_ = stats_;
}

}  // namespace refrain::engine
