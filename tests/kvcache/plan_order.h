#ifndef REFRAIN_TESTS_KVCACHE_PLAN_ORDER_H_
#define REFRAIN_TESTS_KVCACHE_PLAN_ORDER_H_

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "kvcache/attention_plan.h"

namespace refrain::testing {

// Fails unless each run's slots are a stretch of those of its parent, which is the run that its
// sequences read before it, in the parent's order.
inline void CheckDepthFirst(const kvcache::AttentionPlan& plan) {
  std::map<kvcache::SlotId, int32_t> latest;  // index in the plan's slots
  for (const kvcache::PlanRun& run : plan.runs) {
    std::vector<int32_t> in_parent;
    for (int32_t s = run.slot_begin; s < run.slot_end; ++s) {
      const auto [entry, is_first] = latest.try_emplace(plan.slots[static_cast<size_t>(s)].slot, s);
      if (!is_first) in_parent.push_back(std::exchange(entry->second, s));
    }
    if (in_parent.empty()) continue;
    ASSERT_EQ(static_cast<int32_t>(in_parent.size()), run.slot_end - run.slot_begin);
    for (size_t i = 1; i < in_parent.size(); ++i) {
      ASSERT_EQ(in_parent[i], in_parent[i - 1] + 1)
          << "slots " << run.slot_begin << " to " << run.slot_end << " are apart in their parent";
    }
  }
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_KVCACHE_PLAN_ORDER_H_
