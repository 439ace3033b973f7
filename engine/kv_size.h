#ifndef REFRAIN_ENGINE_KV_SIZE_H_
#define REFRAIN_ENGINE_KV_SIZE_H_

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"

namespace refrain::engine {

// What the size of the KV pool depends on.
struct KvBudget {
  int64_t memory_bytes = 0;     // kv_cache.memory_bytes; 0 = half of what is available for it
  int64_t available_bytes = 0;  // on the device, now
  int64_t step_bytes = 0;       // of these, what steps will take beside the pool
  int64_t total_bytes = std::numeric_limits<int64_t>::max();  // of the device, free or not
  int64_t chunk_bytes = 1;
  int64_t chunk_tokens = 64;
  int64_t context_tokens = 0;  // of the longest request that the model can serve
  // engine.max_context_tokens, which has to fit; 0 = a request may be as long as what there is.
  int64_t asked_context_tokens = 0;
  int64_t max_sequences = 1;
  // An earlier answer, if something was made to go with it: how much is available changes while a
  // model is loaded, in both directions.
  int32_t most_chunks = std::numeric_limits<int32_t>::max();
};

// Chunks of the pool; their tokens can be counted in 32 bits. Without memory_bytes no more than
// twice what every sequence at full context could fill. Pure. When not one fits, or less than the
// context that was asked for, the sizes are named by INVALID_ARGUMENT (memory_bytes) or
// RESOURCE_EXHAUSTED (what is available); so they are when memory_bytes would make a pool of more
// than total_bytes. More than is available may be asked for.
absl::StatusOr<int32_t> KvChunksFor(const KvBudget& budget);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_KV_SIZE_H_
