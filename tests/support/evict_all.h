#ifndef REFRAIN_TESTS_SUPPORT_EVICT_ALL_H_
#define REFRAIN_TESTS_SUPPORT_EVICT_ALL_H_

#include "kvcache/idle_sweep.h"

namespace refrain::testing {

// What is idle, in one go; returns how many chunks.
inline int32_t EvictAll(kvcache::CacheManager* cache) {
  kvcache::IdleSweep sweep;
  while (sweep.EvictSome(cache)) {
  }
  return sweep.evicted_chunks();
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_EVICT_ALL_H_
