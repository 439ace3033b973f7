#include "kvcache/chunk_pool.h"

#include <cassert>

namespace refrain::kvcache {

ChunkPool::ChunkPool(int32_t num_chunks) : references_(static_cast<size_t>(num_chunks), 0) {}

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
  assert(references_[ToIndex(chunk)] == 0);
  references_[ToIndex(chunk)] = 1;
  ++taken_;
  return chunk;
}

void ChunkPool::Share(ChunkId chunk) {
  assert(references(chunk) > 0);
  ++references_[ToIndex(chunk)];
}

bool ChunkPool::Release(ChunkId chunk) {
  assert(references(chunk) > 0);
  if (--references_[ToIndex(chunk)] > 0) return false;
  freed_.push_back(chunk);
  --taken_;
  return true;
}

}  // namespace refrain::kvcache
