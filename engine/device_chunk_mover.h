#ifndef REFRAIN_ENGINE_DEVICE_CHUNK_MOVER_H_
#define REFRAIN_ENGINE_DEVICE_CHUNK_MOVER_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv_storage.h"
#include "kernels/backend.h"
#include "kvcache/chunk_mover.h"

namespace refrain::engine {

// Lets the cache manager copy chunks of a device's pool.
//
// Where the back end computes on the host's processors, copies wait for the step that is launched
// next, whose runner calls RunWaiting: then all compute threads copy, each its share of the bytes.
// That is mostly waiting for memory which nobody touched before (PagesAhead), and many sequences
// that begin at once take a copy each. On a device, which copies in the order of its stream, they
// are begun at once.
//
// Engine thread, with no step running on the host. Storage and back end outlive it. Takes no memory
// after it was made.
class DeviceChunkMover : public kvcache::ChunkMover {
 public:
  DeviceChunkMover(KvStorage* storage, kernels::Backend* backend);

  // Fails as KvStorage::CopyBytes does; of copies that wait, RunWaiting does.
  absl::Status CopyChunk(kvcache::ChunkId from, kvcache::ChunkId to) override;

  absl::Status RunWaiting();

 private:
  struct ChunkCopy {
    kvcache::ChunkId from;
    kvcache::ChunkId to;
  };

  // More of them wait in no step that needs to be quick.
  static constexpr size_t kMostWaiting = 256;

  // Those that wait may run in any order, and beside each other.
  bool IsIndependent(const ChunkCopy& copy) const;
  absl::Status CopyRange(size_t begin, size_t end) const;  // bytes of all that wait

  KvStorage* const storage_;
  kernels::Backend* const backend_;
  std::vector<ChunkCopy> waiting_;
  std::vector<absl::Status> shares_;  // what became of each thread's
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_DEVICE_CHUNK_MOVER_H_
