#ifndef REFRAIN_KVCACHE_SHARED_RUNS_H_
#define REFRAIN_KVCACHE_SHARED_RUNS_H_

#include <cstdint>
#include <vector>

namespace refrain::kvcache {

// Chunks that the same two or more running sequences hold, who all hold those of `parent` as well.
struct SharedRun {
  int32_t chunks = 0;   // but for pinned ones: evictable or free when the last holder has left
  int32_t holders = 0;  // running sequences
  int32_t parent = -1;  // index of another run; -1 = none
};

// What running sequences share, as a forest.
struct SharedRuns {
  std::vector<SharedRun> runs;
  std::vector<int32_t> last_runs;  // of each sequence asked for, its deepest; -1 = shares nothing
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_SHARED_RUNS_H_
