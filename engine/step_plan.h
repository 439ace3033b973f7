#ifndef REFRAIN_ENGINE_STEP_PLAN_H_
#define REFRAIN_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvcache/types.h"

namespace refrain::engine {

using kvcache::SequenceId;

// The next `num_tokens` tokens of a sequence are computed.
struct StepWork {
  SequenceId sequence{};
  int32_t num_tokens = 0;
  friend bool operator==(const StepWork&, const StepWork&) = default;
};

// What one step does, in the order in which it is committed. A value: intent only, nothing is
// allocated by making one.
struct StepPlan {
  std::vector<SequenceId> preempt;  // give up their chunks and wait again, first in the queue
  std::vector<SequenceId> admit;    // start to run; each also has work
  std::vector<StepWork> work;

  bool empty() const { return preempt.empty() && admit.empty() && work.empty(); }
  std::string ToString() const;
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STEP_PLAN_H_
