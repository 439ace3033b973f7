#ifndef REFRAIN_KVCACHE_OPTIONS_H_
#define REFRAIN_KVCACHE_OPTIONS_H_

#include <cstdint>
#include <string>

namespace refrain::kvcache {

// What a cache manager is made with; it does not change afterwards.
struct CacheOptions {
  int32_t num_chunks = 0;  // of the device pool; at least 1
  int32_t chunk_tokens = 64;
  int32_t max_slots = 64;               // sequences running at once
  bool prefix_cache = true;             // off: nothing is matched, nothing stays
  std::string eviction = "reuse_rate";  // eviction_policy.h
  uint64_t hash_mask = ~uint64_t{0};    // fewer bits: for tests (PrefixTree)
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_OPTIONS_H_
