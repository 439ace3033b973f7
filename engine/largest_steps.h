#ifndef REFRAIN_ENGINE_LARGEST_STEPS_H_
#define REFRAIN_ENGINE_LARGEST_STEPS_H_

#include <cstdint>
#include <vector>

#include "engine/step_batch.h"

namespace refrain::engine {

struct StepLimits {
  int32_t max_sequences = 1;
  int32_t max_rows = 1;
  int32_t max_context_tokens = 1;
  int32_t window_tokens = 0;  // 0 = none
  int32_t chunk_tokens = 64;
  int32_t num_chunks = 1;  // of the KV pool
};

// Steps that take about as much of a back end's memory as any within the limits, in each way that
// counts: the beginnings of as many prompts as have room; the next token of all sequences, whose
// parts of the pool are equal; one token behind the longest context that the pool holds. Slots,
// plan and the number of tokens are set, no more.
//
// Not the worst there is: a prompt's piece far into a long context has more partial states of
// attention, which are memory that smaller steps do without. Pure.
std::vector<StepBatch> LargestSteps(const StepLimits& limits);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_LARGEST_STEPS_H_
