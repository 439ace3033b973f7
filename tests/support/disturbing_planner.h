#ifndef REFRAIN_TESTS_SUPPORT_DISTURBING_PLANNER_H_
#define REFRAIN_TESTS_SUPPORT_DISTURBING_PLANNER_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/engine_parts.h"
#include "tests/support/evict_all.h"

namespace refrain::testing {

// Plans with two running sequences or more, and those of them that preempt.
struct PreemptionCounts {
  std::atomic<int64_t> plans = 0;
  std::atomic<int64_t> preempting = 0;
};

// Plans as the scheduler does, but evicts at every step all that may be evicted, and preempts a
// running sequence at each where there are two: never the oldest, which with nothing left of it
// would never end. With `oldest_too` at every second step, and now and then the oldest as well.
// Called by the engine's thread; `cache` and `counts` outlive it.
class DisturbingPlanner {
 public:
  DisturbingPlanner(kvcache::CacheManager* cache, bool oldest_too, PreemptionCounts* counts)
      : cache_(cache), oldest_too_(oldest_too), counts_(counts) {}

  engine::StepPlan operator()(const engine::SchedulerSnapshot& snapshot) {
    engine::StepPlan plan = Disturb(snapshot);
    if (snapshot.running.size() > 1) {
      ++counts_->plans;
      counts_->preempting += plan.preempt.empty() ? 0 : 1;
    }
    return plan;
  }

 private:
  engine::StepPlan Disturb(const engine::SchedulerSnapshot& snapshot) {
    EvictAll(cache_);
    const engine::StepPlan undisturbed = engine::Plan(snapshot);
    engine::StepPlan plan = undisturbed;
    const size_t running = snapshot.running.size();
    if (!plan.preempt.empty() || running == 0 || !PreemptsNow(running)) return plan;
    const size_t victim = running == 1 ? 0 : 1 + static_cast<size_t>(step_ / 2) % (running - 1);
    const engine::SequenceId id = snapshot.running[victim].sequence;
    std::erase_if(plan.work, [&](const engine::StepWork& work) {
      return work.sequence == id ||
             std::count(plan.admit.begin(), plan.admit.end(), work.sequence) > 0;
    });
    plan.admit.clear();
    plan.preempt.push_back(id);
    // Beams wait for one another: without the victim nothing may go on, and so for ever.
    return running > 1 && plan.work.empty() ? undisturbed : plan;
  }

  bool PreemptsNow(size_t running) {
    ++step_;
    if (oldest_too_) return step_ % (running > 1 ? 2 : 40) == 0;
    return running > 1;
  }

  kvcache::CacheManager* const cache_;
  const bool oldest_too_;
  PreemptionCounts* const counts_;
  int step_ = 0;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_DISTURBING_PLANNER_H_
