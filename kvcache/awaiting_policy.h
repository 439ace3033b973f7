#ifndef REFRAIN_KVCACHE_AWAITING_POLICY_H_
#define REFRAIN_KVCACHE_AWAITING_POLICY_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/eviction_policy.h"
#include "kvcache/waiting_line.h"

namespace refrain::kvcache {

// Honours Await on behalf of another policy: an idle chunk that a sequence awaits is in use again
// as far as the other policy is told, until nothing else can be evicted. Then that goes first which
// will be used last: what the first to come of those that await it is the last of all. (The
// look-ahead window of AttentionStore, section 3.3.2, with the whole queue in it.)
//
// Who comes first in one line is told by rank and id. Of several lines each names the chunk that
// its last one to come awaits, and the line goes first whose turn for that comes last. Turns change
// all the time, so lines are asked for them only when something has to go. A chunk that is awaited
// in several lines counts where the turn for it came first when those that await it last changed.
//
// A sequence awaits one chunk, and so all before it, as leaves go before parents. What is evicted
// all the same, or dropped, is awaited no more, but what came before it is: a lineage that gives up
// does so from its end.
//
// Those that await one chunk move as a group when it leaves. Where two groups meet, the smaller one
// joins the larger, so that thousands that await one lineage cost little when it gives up.
//
// Called by ChunkCache alone, through EvictionPolicy. O(log n) per call, and where lines take turns
// a question to each of those that await an idle chunk for every lineage that gives up, and for
// every chunk that they share; for each Await, O(log^2 n) more until it ends, however often what it
// awaits leaves.
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
  void Await(SequenceId sequence, const WaitingPlace& place, NodeId node) override;
  void StopAwaiting(SequenceId sequence) override;

 private:
  struct Place {
    const WaitingLine* line;
    int32_t rank;
    SequenceId sequence;

    friend auto operator<=>(const Place&, const Place&) = default;
    // Behind all of the line.
    static Place EndOf(const WaitingLine* line) {
      return {line, INT32_MAX, SequenceId{UINT64_MAX}};
    }
    // The lower the sooner, also among those of several lines.
    std::pair<int64_t, SequenceId> Turn() const {
      return {line != nullptr ? line->TurnOf(rank, sequence) : rank, sequence};
    }
  };
  // Those that await one chunk; there are some.
  struct Group {
    NodeId node{-1};
    std::set<Place> places;
    Place first{};  // where it is spared: who comes first
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
    Place place;
  };

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  bool IsKnown(NodeId node) const;
  static Place FirstOf(const std::set<Place>& places);
  void AddToSpared(Group* group);
  void TakeFromSpared(const Group& group) { spared_.erase({group.first, group.node}); }
  // Of those spared; there are some.
  NodeId LastSpared();
  // Of an idle chunk that the other policy may evict; Show makes it such a chunk again.
  void Spare(NodeId node);
  void Show(NodeId node);
  void AddGroup(std::unique_ptr<Group> group, NodeId node);
  // Those that await `node`, which is about to leave, await `other`, or nothing if it is a root.
  void MoveTo(NodeId node, NodeId other);

  const std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Chunk> chunks_;  // [nodes]
  std::unordered_map<SequenceId, Waiting> waiting_;
  std::set<std::pair<Place, NodeId>> spared_;  // by line, then by who comes first there
  std::optional<Place> gives_up_;              // who is giving up, until it awaits anew
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_AWAITING_POLICY_H_
