// What a plan depends on, as of now.

#include <utility>
#include <vector>

#include "engine/engine_loop.h"

namespace refrain::engine {

bool EngineLoop::SomeTenantWaits() const {
  std::vector<bool> runs(snapshot_.tenants.size());
  if (runs.empty()) return false;
  for (const RunningEntry& entry : snapshot_.running) runs[entry.tenant] = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i] && snapshot_.tenants[i].has_requests) return true;
  }
  return false;
}

void EngineLoop::TellShares() {
  if (snapshot_.tenants.empty()) return;
  std::vector<bool> lacking(snapshot_.tenants.size());
  // Who is held lacks nothing that a plan could give.
  for (const WaitingEntry& entry : snapshot_.waiting) {
    if (!entry.held) lacking[entry.tenant] = true;
  }
  for (const RunningEntry& entry : snapshot_.running) {
    const int32_t appended_tokens = parts_.cache->appended_tokens(entry.sequence);
    if (sequences_.at(entry.sequence)->RunnableTokens(appended_tokens) > 1) {
      lacking[entry.turn_of()] = true;
    }
  }
  shares_.SetLacking(lacking);
}

namespace {

void FindSharedRuns(const kvcache::CacheManager& cache, SchedulerSnapshot* snapshot) {
  std::vector<SequenceId> sequences;
  sequences.reserve(snapshot->running.size());
  for (const RunningEntry& entry : snapshot->running) sequences.push_back(entry.sequence);
  kvcache::SharedRuns shared = cache.FindSharedRuns(sequences);
  for (size_t i = 0; i < sequences.size(); ++i) {
    snapshot->running[i].shared_run = shared.last_runs[i];
  }
  snapshot->shared_runs = std::move(shared.runs);
}

}  // namespace

void EngineLoop::RefreshSnapshot() {
  const kvcache::CacheManager& cache = *parts_.cache;
  snapshot_.step = stats_.steps_total;
  snapshot_.free_chunks = cache.stats().available_chunks();
  snapshot_.tenants = shares_.competing();
  snapshot_.limits.step_token_budget = backoff_.Limit(options_.scheduler.step_token_budget);
  // Who runs decodes in every step: no more of them than a step may have tokens.
  snapshot_.limits.max_sequences = backoff_.Limit(options_.scheduler.max_sequences);
  // Each running sequence takes at most one chunk before any prefill does; with several tenants a
  // prefill that lacks chunks may take a sequence, too.
  const auto running = static_cast<int32_t>(snapshot_.running.size());
  const int32_t prefill_chunks =
      snapshot_.limits.step_token_budget / snapshot_.limits.chunk_tokens + running;
  const int32_t most_chunks = running + (snapshot_.tenants.empty() ? 0 : prefill_chunks);
  const bool may_preempt = snapshot_.free_chunks <= most_chunks || SomeTenantWaits();
  beams_run_ = false;
  for (RunningEntry& entry : snapshot_.running) {
    SequenceState& sequence = *sequences_.at(entry.sequence);
    beams_run_ = beams_run_ || sequence.request->beams() != nullptr;
    StartProducing(&sequence);
    const int32_t appended_tokens = cache.appended_tokens(entry.sequence);
    entry.next_token = sequence.NextToken(appended_tokens);
    entry.reserved_tokens = cache.reserved_tokens(entry.sequence);
    entry.runnable_tokens = sequence.RunnableTokens(appended_tokens);
    entry.decoding =
        entry.next_token >= sequence.request->prompt_tokens() && entry.runnable_tokens <= 1;
    entry.later_tokens = sequence.LaterTokens();
    entry.replays = sequence.replaying();
    entry.exclusive_chunks = may_preempt ? cache.ExclusiveChunks(entry.sequence) : 0;
    entry.shared_run = -1;
  }
  snapshot_.shared_runs.clear();
  if (may_preempt) FindSharedRuns(cache, &snapshot_);
  if (snapshot_.limits.policy == Policy::kPriority) InheritPriorities();
  InheritTurns();
  if (snapshot_.limits.policy == Policy::kFcfs) InheritAges();
}

}  // namespace refrain::engine
