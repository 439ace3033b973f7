#ifndef REFRAIN_KVCACHE_S3FIFO_POLICY_H_
#define REFRAIN_KVCACHE_S3FIFO_POLICY_H_

#include <cstdint>
#include <deque>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/eviction_policy.h"

namespace refrain::kvcache {

// S3-FIFO (Yang et al., SOSP 2023) for a tree of which only idle leaves may go.
//
// A new chunk enters the small queue, a tenth of the pool. At its turn it moves to the main queue
// when it was hit more than once, else it goes and its name stays as a ghost; a chunk whose ghost
// is known enters the main queue at once. There, a chunk that was hit since its last turn gets
// another one, up to three. Chunks in use or with children keep their places and are passed over.
// A move costs O(log n); a chunk moves at most once per hit.
class S3FifoPolicy : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(int32_t capacity_chunks);

  void RequestJoined() override {}
  void Hit(NodeId node) override;
  void Inserted(NodeId node, const ChunkTraits& traits) override;
  void Changed(NodeId node, const ChunkTraits& traits) override;
  void Idle(NodeId node) override;
  void Busy(NodeId node) override;
  void Evicted(NodeId node) override;
  void Dropped(NodeId node) override;
  std::optional<NodeId> Victim() override;

 private:
  enum class Queue : uint8_t { kSmall, kMain };
  struct Chunk {
    uint64_t place = 0;  // in its queue
    uint64_t lineage_hash = 0;
    Queue queue = Queue::kSmall;
    uint8_t hits = 0;
  };
  using IdleChunks = std::set<std::pair<uint64_t, NodeId>>;  // by place

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  IdleChunks& IdleOf(Queue queue) { return queue == Queue::kSmall ? idle_small_ : idle_main_; }
  void Remove(NodeId node);
  void RememberGhost(uint64_t lineage_hash);

  const size_t small_chunks_;
  const size_t max_ghosts_;
  uint64_t places_ = 0;
  size_t num_small_ = 0;       // chunks of the small queue, idle or not
  std::vector<Chunk> chunks_;  // [nodes]
  IdleChunks idle_small_, idle_main_;
  std::unordered_map<uint64_t, uint64_t> ghosts_;          // lineage hash -> when it became one
  std::deque<std::pair<uint64_t, uint64_t>> ghost_order_;  // when, lineage hash
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_S3FIFO_POLICY_H_
