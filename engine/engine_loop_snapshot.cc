// What a plan depends on, as of now.

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

void EngineLoop::RefreshSnapshot() {
  const kvcache::CacheManager& cache = *parts_.cache;
  snapshot_.step = stats_.steps_total;
  snapshot_.free_chunks = cache.stats().available_chunks();
  snapshot_.tenants = shares_.competing();
  snapshot_.limits.step_token_budget = backoff_.Limit(options_.scheduler.step_token_budget);
  // Who runs decodes in every step: no more of them than a step may have tokens.
  snapshot_.limits.max_sequences = backoff_.Limit(options_.scheduler.max_sequences);
  // Each running sequence takes at most one chunk before any prefill does.
  const bool may_preempt =
      snapshot_.free_chunks <= static_cast<int32_t>(snapshot_.running.size()) || SomeTenantWaits();
  for (RunningEntry& entry : snapshot_.running) {
    const SequenceState& sequence = *sequences_.at(entry.sequence);
    const int32_t appended_tokens = cache.appended_tokens(entry.sequence);
    entry.next_token = sequence.NextToken(appended_tokens);
    entry.reserved_tokens = cache.reserved_tokens(entry.sequence);
    entry.runnable_tokens = sequence.RunnableTokens(appended_tokens);
    entry.decoding =
        entry.next_token >= sequence.request->prompt_tokens() && entry.runnable_tokens <= 1;
    entry.exclusive_chunks = may_preempt ? cache.ExclusiveChunks(entry.sequence) : 0;
  }
  if (snapshot_.limits.policy == Policy::kPriority) InheritPriorities();
}

}  // namespace refrain::engine
