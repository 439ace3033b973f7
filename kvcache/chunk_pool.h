#ifndef REFRAIN_KVCACHE_CHUNK_POOL_H_
#define REFRAIN_KVCACHE_CHUNK_POOL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcache/types.h"

namespace refrain::kvcache {

// Which chunks of the device pool are taken. Ids only: it knows neither addresses nor what is in a
// chunk (KvLayout and the engine do).
//
// The chunk freed last is handed out first, and a chunk that was never used only when no other is
// free, so that the pool's memory is touched no further than it was ever full (the address range is
// reserved at start, pages come on first use).
//
// A chunk is shared by reference counts: Allocate gives one reference, Share adds one, Release
// drops one; the last one frees the chunk. Single thread (the cache manager's). Misuse (releasing a
// free chunk) is a programming error and asserts.
class ChunkPool {
 public:
  explicit ChunkPool(int32_t num_chunks);

  // Nothing when all are taken.
  std::optional<ChunkId> AllocateOrNull();
  void Share(ChunkId chunk);
  // True when that was the last reference.
  bool Release(ChunkId chunk);

  int32_t references(ChunkId chunk) const { return references_[ToIndex(chunk)]; }
  int32_t total_chunks() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_chunks() const { return total_chunks() - taken_; }
  int32_t touched_chunks() const { return touched_; }  // ever handed out: bounds touched memory

 private:
  std::vector<int32_t> references_;  // [total_chunks] 0 = free
  std::vector<ChunkId> freed_;       // stack
  int32_t touched_ = 0;              // chunks from here on were never handed out
  int32_t taken_ = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_CHUNK_POOL_H_
