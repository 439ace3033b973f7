#ifndef REFRAIN_KVCACHE_CHUNK_MOVER_H_
#define REFRAIN_KVCACHE_CHUNK_MOVER_H_

#include "absl/status/status.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// Moves the bytes of chunks, for a cache manager that knows only ids. The engine implements it over
// a device (device_chunk_mover.h), tests by a fake.
//
// Order: a copy sees what every step launched before it wrote, and every step launched after it
// sees the copy. Engine thread only. Failure: INTERNAL when the device is broken.
class ChunkMover {
 public:
  virtual ~ChunkMover() = default;

  // All layers. The whole chunk is copied; tokens behind the part in use are garbage in both.
  virtual absl::Status CopyChunk(ChunkId from, ChunkId to) = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_CHUNK_MOVER_H_
