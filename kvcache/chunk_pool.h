#ifndef REFRAIN_KVCACHE_CHUNK_POOL_H_
#define REFRAIN_KVCACHE_CHUNK_POOL_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "kvcache/types.h"

namespace refrain::kvcache {

// Which chunks of the device pool are taken. Ids only: it knows neither addresses nor what is in a
// chunk (KvLayout and the engine do), nor who shares it (the prefix tree does).
//
// The chunk freed last is handed out first, and a chunk that was never used only when no other is
// free, so that the pool's memory is touched no further than it was ever full (the address range is
// reserved at start, pages come on first use). Single thread (the cache manager's). Misuse
// (releasing a free chunk) is a programming error and asserts.
class ChunkPool {
 public:
  explicit ChunkPool(int32_t num_chunks);

  // Nothing when all are taken.
  std::optional<ChunkId> AllocateOrNull();
  void Release(ChunkId chunk);

  bool IsTaken(ChunkId chunk) const { return taken_[ToIndex(chunk)]; }
  int32_t total_chunks() const { return static_cast<int32_t>(taken_.size()); }
  int32_t free_chunks() const { return total_chunks() - num_taken_; }
  int32_t touched_chunks() const { return touched_; }  // ever handed out: bounds touched memory

 private:
  std::vector<bool> taken_;    // [total_chunks]
  std::deque<ChunkId> freed_;  // stack; none is moved as it grows
  int32_t touched_ = 0;        // chunks from here on were never handed out
  int32_t num_taken_ = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_CHUNK_POOL_H_
