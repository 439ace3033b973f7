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

// Honours Await on behalf of another policy: an idle chunk that a sequence awaits is in use again
// as far as the other policy is told, until nothing else can be evicted. Then that goes first which
// will be used last: what the first to come of those that await it is the last of all. (The
// look-ahead window of AttentionStore, section 3.3.2, with the whole queue in it.)
//
// Who comes first is told by rank and age. With several tenants the scheduler picks the tenant
// first, by what each has been served: then the order is a guess.
//
// A sequence awaits one chunk, and so all before it, as leaves go before parents. What is evicted
// all the same, or dropped, is awaited no more, but what came before it is: a lineage that gives up
// does so from its end.
//
// Those that await one chunk move as a group when it leaves. Where two groups meet, the smaller one
// joins the larger, so that thousands that await one lineage cost little when it gives up.
//
// Called by ChunkCache alone, through EvictionPolicy. O(log n) per call; for each Await, O(log^2 n)
// more until it ends, however often what it awaits leaves.
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
  void Leaving(NodeId node, AnswerEnd end) override { policy_->Leaving(node, end); }
  void Await(SequenceId sequence, int32_t rank, NodeId node) override;
  void StopAwaiting(SequenceId sequence) override;

 private:
  using Place = std::pair<int32_t, SequenceId>;  // in the queue: rank, then id
  // Those that await one chunk; there are some.
  struct Group {
    NodeId node{-1};
    std::set<Place> places;
  };
  struct Chunk {
    NodeId parent{-1};
    bool known = false;  // else it is a root, or nothing
    bool idle = false;
    bool spared = false;           // idle, and the other policy was told that it is in use again
    std::unique_ptr<Group> group;  // null: nobody awaits it
  };
  struct Waiting {
    Group* group;
    int32_t rank;
  };

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  bool IsKnown(NodeId node) const;
  // Among those spared: by who comes first of those that await it.
  std::pair<Place, NodeId> KeyOf(NodeId node) { return {*Get(node).group->places.begin(), node}; }
  // Of an idle chunk that the other policy may evict; Show makes it such a chunk again.
  void Spare(NodeId node);
  void Show(NodeId node);
  void AddGroup(std::unique_ptr<Group> group, NodeId node);
  // Those that await `node`, which is about to leave, await `other`, or nothing if it is a root.
  void MoveTo(NodeId node, NodeId other);

  const std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Chunk> chunks_;  // [nodes]
  std::unordered_map<SequenceId, Waiting> waiting_;
  std::set<std::pair<Place, NodeId>> spared_;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_AWAITING_POLICY_H_
