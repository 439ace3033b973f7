#ifndef REFRAIN_KVCACHE_AWAITING_POLICY_H_
#define REFRAIN_KVCACHE_AWAITING_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/eviction_policy.h"

namespace refrain::kvcache {

// Honours Await on behalf of another policy: an idle chunk that a sequence awaits is not shown to
// the other policy, for which it stays in use, until nothing else can be evicted. Then that goes
// first which will be used last: what the first to come of those that await it is the last of all.
// (The look-ahead window of AttentionStore, section 3.3.2, with the whole queue in it.)
//
// A sequence awaits one chunk, and so all before it, as leaves go before parents. What is evicted
// all the same, or dropped, is awaited no more, but what came before it is: a lineage that gives up
// does so from its end.
//
// Called by ChunkCache alone, through EvictionPolicy. O(log n) per call; where an awaited chunk
// leaves, for each sequence that awaits it.
class AwaitingPolicy final : public EvictionPolicy {
 public:
  explicit AwaitingPolicy(std::unique_ptr<EvictionPolicy> policy) : policy_(std::move(policy)) {}

  void RequestJoined() override { policy_->RequestJoined(); }
  void Hit(NodeId node) override { policy_->Hit(node); }
  void HitInPart(NodeId node) override { policy_->HitInPart(node); }
  void Inserted(NodeId node, const ChunkTraits& traits) override;
  void Changed(NodeId node, const ChunkTraits& traits) override { policy_->Changed(node, traits); }
  void Idle(NodeId node) override;
  void Busy(NodeId node) override;
  void Evicted(NodeId node) override;
  void Dropped(NodeId node) override;
  // Who awaited it awaits the other one.
  void Replaced(NodeId node, NodeId by) override;
  std::optional<NodeId> Victim() override;
  void Retain(NodeId node, std::string_view tenant) override { policy_->Retain(node, tenant); }
  void Await(SequenceId sequence, NodeId node) override;
  void StopAwaiting(SequenceId sequence) override;

 private:
  struct Chunk {
    NodeId parent{-1};
    bool known = false;  // else it is a root, or nothing
    bool idle = false;
    bool spared = false;  // idle, and the other policy is not told
    std::set<SequenceId> awaited_by;
  };

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  bool IsKnown(NodeId node) const;
  void Spare(NodeId node);
  // The other policy is told that it is idle.
  void Show(NodeId node);
  void AddSequence(SequenceId sequence, NodeId node);
  void RemoveSequence(SequenceId sequence, NodeId node);
  // What awaited `node`, which is about to leave, awaits `other`, or nothing where that is no
  // chunk.
  void MoveTo(NodeId node, NodeId other);

  const std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Chunk> chunks_;  // [nodes]
  std::unordered_map<SequenceId, NodeId> awaits_;
  std::set<std::pair<SequenceId, NodeId>> spared_;  // by who comes first of those that await it
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_AWAITING_POLICY_H_
