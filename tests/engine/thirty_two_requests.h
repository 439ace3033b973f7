#ifndef REFRAIN_TESTS_ENGINE_THIRTY_TWO_REQUESTS_H_
#define REFRAIN_TESTS_ENGINE_THIRTY_TWO_REQUESTS_H_

#include "tests/support/loop_harness.h"

namespace refrain::engine {

// Room for 32 requests of 2,048 tokens each.
inline testing::LoopOptions OptionsOf32(int max_in_flight) {
  testing::LoopOptions options;
  options.num_chunks = 400;
  options.max_sequences = 32;
  options.step_token_budget = 256;
  options.max_context_tokens = 4096;
  options.max_in_flight = max_in_flight;
  return options;
}

// What the request gets where nothing is shared.
inline testing::RequestOutput Alone(const Request& request) {
  testing::LoopHarness alone(
      {.num_chunks = 400, .max_context_tokens = 4096, .prefix_cache = false});
  return alone.Run(request);
}

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_THIRTY_TWO_REQUESTS_H_
