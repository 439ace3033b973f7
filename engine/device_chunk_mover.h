#ifndef REFRAIN_ENGINE_DEVICE_CHUNK_MOVER_H_
#define REFRAIN_ENGINE_DEVICE_CHUNK_MOVER_H_

#include "absl/status/status.h"
#include "engine/kv_storage.h"
#include "kvcache/chunk_mover.h"

namespace refrain::engine {

// Lets the cache manager copy chunks of a device's pool. The storage outlives it. Engine thread.
class DeviceChunkMover : public kvcache::ChunkMover {
 public:
  explicit DeviceChunkMover(KvStorage* storage) : storage_(storage) {}

  absl::Status CopyChunk(kvcache::ChunkId from, kvcache::ChunkId to) override {
    return storage_->CopyChunk(from, to);
  }

 private:
  KvStorage* storage_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_DEVICE_CHUNK_MOVER_H_
