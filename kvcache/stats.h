#ifndef REFRAIN_KVCACHE_STATS_H_
#define REFRAIN_KVCACHE_STATS_H_

#include <cstdint>

namespace refrain::kvcache {

// free + used + cached == total, always.
struct CacheStats {
  int32_t total_chunks = 0;
  int32_t free_chunks = 0;
  int32_t used_chunks = 0;     // a running sequence has them, or a pin keeps them
  int32_t cached_chunks = 0;   // kept for later requests; can be had back at once
  int32_t touched_chunks = 0;  // ever handed out: what the pool costs in resident memory
  int32_t sequences = 0;
  int32_t chunk_tokens = 0;
  int64_t copied_chunks_total = 0;  // part-full chunks copied for a sequence that diverges
  int64_t evicted_chunks_total = 0;
  int64_t merged_chunks_total = 0;   // full chunks dropped in favour of an equal one
  int64_t matched_tokens_total = 0;  // that sequences found when they joined
  int64_t logical_tokens = 0;        // appended tokens, summed over the running sequences

  int64_t capacity_tokens() const { return int64_t{total_chunks} * chunk_tokens; }
  int32_t available_chunks() const { return free_chunks + cached_chunks; }
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_STATS_H_
