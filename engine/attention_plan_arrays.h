#ifndef REFRAIN_ENGINE_ATTENTION_PLAN_ARRAYS_H_
#define REFRAIN_ENGINE_ATTENTION_PLAN_ARRAYS_H_

#include <memory>

#include "engine/step_batch.h"
#include "kvcache/attention_plan.h"

namespace refrain::engine {

// A cache's plan in the form that kernels read: neither side knows the other. Pure.
std::shared_ptr<const AttentionPlanArrays> ToArrays(const kvcache::AttentionPlan& plan);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ATTENTION_PLAN_ARRAYS_H_
