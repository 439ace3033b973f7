#ifndef REFRAIN_KVCACHE_RETAINING_POLICY_H_
#define REFRAIN_KVCACHE_RETAINING_POLICY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kvcache/eviction_policy.h"

namespace refrain::kvcache {

// Honours Retain on behalf of another policy: a retained chunk that becomes idle is not shown to
// the other policy, for which it stays in use, until
//
//   - nothing else can be evicted, or
//   - more than `max_retained_chunks` are idle: the one that has been idle longest goes first.
//
// It is the other policy's like any chunk then, and no longer retained. So the hint costs those who
// do not use it at most that share of the pool, and never makes a request wait.
//
// Called by ChunkCache alone, through EvictionPolicy. O(log n) per call of a retained chunk.
class RetainingPolicy final : public EvictionPolicy {
 public:
  RetainingPolicy(std::unique_ptr<EvictionPolicy> policy, int32_t max_retained_chunks);

  void RequestJoined() override { policy_->RequestJoined(); }
  void Hit(NodeId node) override { policy_->Hit(node); }
  void Inserted(NodeId node, const ChunkTraits& traits) override;
  void Changed(NodeId node, const ChunkTraits& traits) override { policy_->Changed(node, traits); }
  void Idle(NodeId node) override;
  void Busy(NodeId node) override;
  void Evicted(NodeId node) override;
  void Dropped(NodeId node) override;
  std::optional<NodeId> Victim() override;
  void Retain(NodeId node) override;

 private:
  struct Chunk {
    bool retained = false;
    uint64_t idle_number = 0;  // in idle_; 0: not there
  };

  Chunk& Get(NodeId node);
  // Out of idle_; the other policy is not told.
  void Take(Chunk* chunk);
  // An idle chunk that leaves is one of the other policy's first: it knows no other way.
  void HandOver(NodeId node);
  // The chunk that has been idle longest becomes the other policy's.
  void ReleaseOldest();

  const std::unique_ptr<EvictionPolicy> policy_;
  const size_t max_retained_chunks_;
  std::vector<Chunk> chunks_;        // [nodes]
  std::map<uint64_t, NodeId> idle_;  // retained ones, in the order in which they became idle
  uint64_t last_number_ = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_RETAINING_POLICY_H_
