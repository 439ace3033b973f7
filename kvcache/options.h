#ifndef REFRAIN_KVCACHE_OPTIONS_H_
#define REFRAIN_KVCACHE_OPTIONS_H_

#include <cstdint>

namespace refrain::kvcache {

struct CacheOptions {
  int32_t num_chunks = 0;     // of the device pool; at least 1
  int32_t chunk_tokens = 64;  // a multiple of 16
  int32_t max_slots = 64;     // sequences running at once
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_OPTIONS_H_
