#include "engine/attention_plan_arrays.h"

namespace refrain::engine {

std::shared_ptr<const AttentionPlanArrays> ToArrays(const kvcache::AttentionPlan& plan) {
  auto arrays = std::make_shared<AttentionPlanArrays>();
  arrays->generation = plan.generation;
  arrays->runs.reserve(plan.runs.size());
  for (const kvcache::PlanRun& run : plan.runs) {
    arrays->runs.push_back({run.chunk_begin, run.chunk_end, run.slot_begin, run.slot_end});
  }
  arrays->chunks.reserve(plan.chunks.size());
  for (const kvcache::PlanChunk& chunk : plan.chunks) {
    arrays->chunks.push_back({static_cast<int32_t>(chunk.chunk), chunk.token_begin});
  }
  arrays->slots.reserve(plan.slots.size());
  for (const kvcache::PlanSlot& slot : plan.slots) {
    arrays->slots.push_back({static_cast<int32_t>(slot.slot), slot.key_begin,
                             slot.key_end.value_or(kernels::kOpenEnd)});
  }
  return arrays;
}

}  // namespace refrain::engine
