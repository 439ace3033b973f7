#include "kvcache/chunk_pool.h"

#include <cassert>

namespace refrain::kvcache {

ChunkPool::ChunkPool(int32_t num_chunks) : taken_(static_cast<size_t>(num_chunks), false) {}

std::optional<ChunkId> ChunkPool::AllocateOrNull() {
  ChunkId chunk;
  if (!freed_.empty()) {
    chunk = freed_.back();
    freed_.pop_back();
  } else if (touched_ < total_chunks()) {
    chunk = ChunkId{touched_++};
  } else {
    return std::nullopt;
  }
  assert(!IsTaken(chunk));
  taken_[ToIndex(chunk)] = true;
  ++num_taken_;
  return chunk;
}

void ChunkPool::Release(ChunkId chunk) {
  assert(IsTaken(chunk));
  taken_[ToIndex(chunk)] = false;
  freed_.push_back(chunk);
  --num_taken_;
}

}  // namespace refrain::kvcache
