#ifndef REFRAIN_TOOLS_CACHESIM_SIMULATOR_H_
#define REFRAIN_TOOLS_CACHESIM_SIMULATOR_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/cachesim/trace.h"

namespace refrain::cachesim {

// The policy that knows the future; every other name is one of kv_cache.eviction.
inline constexpr const char* kOracle = "oracle";

struct SimulationResult {
  int64_t prompt_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t evicted_blocks = 0;
  double seconds = 0;      // of CPU, in cache and policy
  double mean_queued = 0;  // requests that waited as one was served

  double hit_rate() const {
    return prompt_tokens == 0
               ? 0
               : static_cast<double>(hit_tokens) / static_cast<double>(prompt_tokens);
  }
};

struct SimulationOptions {
  int32_t cache_blocks = 0;
  // Prompt tokens that are computed in a second: requests that come in the meantime wait. 0: each
  // is served before the next one comes.
  double served_tokens_per_s = 0;
  // Whether what waiting requests match is evicted last, as in the server.
  bool await = true;
  // Whether the policy is told how answers ended, where the trace says so.
  bool answers = true;
};

// Replays a trace against the server's CacheManager with no model behind it: requests are served
// one after the other, in order of arrival; each matches, joins, computes what was not matched, and
// leaves. A block of the trace is a chunk of one token. What does not fit into the cache at once is
// not kept. INVALID_ARGUMENT: an unknown policy, or a cache of no blocks.
absl::StatusOr<SimulationResult> Simulate(const Trace& trace, const std::string& policy,
                                          const SimulationOptions& options);

}  // namespace refrain::cachesim

#endif  // REFRAIN_TOOLS_CACHESIM_SIMULATOR_H_
