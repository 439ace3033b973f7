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
// At most `max_awaited_chunks` are kept so, those that are in use counted, and one lineage more
// that does not fit whole: where there would be more, whoever comes last gives up at once what is
// idle, or awaits nothing, until it awaits anew. Of those that await what is in use, or what has
// others behind it, nobody gives up, even where a later one has more: a known gap. So a queue,
// however long, leaves a part of the pool to those who will come back and do not wait now: often
// they do so long before the last of the queue runs (docs/results/cachesim.md, "With a queue").
//
// A sequence awaits one chunk, and so all before it, as leaves go before parents. What is evicted
// all the same, or dropped, is awaited no more, but what came before it is: a lineage that gives up
// does so from its end.
//
// Those that await one chunk move as a group when it leaves. Where two groups meet, the smaller one
// joins the larger, so that thousands that await one lineage cost little when it gives up.
//
// Called by ChunkCache alone, through EvictionPolicy. O(log n) per call, and for each chunk that an
// Await, or its end, makes awaited or not; for each Await, O(log^2 n) more until it ends, however
// often what it awaits leaves. Where lines take turns, a question to each of those that await an
// idle chunk, whenever another lineage gives up or those that await a chunk of several lines
// change. Who comes last of all is remembered until a request joins, or what is spared changes: of
// many that come to wait and find no room only the first one asks all lines.
class AwaitingPolicy final : public EvictionPolicy {
 public:
  AwaitingPolicy(std::unique_ptr<EvictionPolicy> policy, int32_t max_awaited_chunks)
      : policy_(std::move(policy)), max_awaited_chunks_(max_awaited_chunks) {}

  void RequestJoined() override {
    last_.reset();  // turns have changed
    policy_->RequestJoined();
  }
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
  void Await(SequenceId sequence, const WaitingPlace& place, NodeId node) override;
  void StopAwaiting(SequenceId sequence) override;

 private:
  struct Place {
    const WaitingLine* line;
    int64_t rank;
    SequenceId sequence;

    friend auto operator<=>(const Place&, const Place&) = default;
    // Behind all of the line.
    static Place EndOf(const WaitingLine* line) {
      return {line, INT64_MAX, SequenceId{UINT64_MAX}};
    }
    // Also where the other one stands in another line.
    bool RunsBefore(const Place& other) const {
      return line == other.line ? *this < other : Turn() < other.Turn();
    }
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
    int32_t awaited = 0;  // 1 for its group, and 1 for each child of which this is not 0
    bool known = false;   // else it is a root, or nothing
    bool idle = false;
    bool spared = false;           // idle, and the other policy was told that it is in use again
    std::unique_ptr<Group> group;  // null: nobody awaits it
  };
  struct Waiting {
    Group* group;
    Place place;
  };
  using Spared = std::set<std::pair<Place, NodeId>>;  // by line, then by who comes first there

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  bool IsKnown(NodeId node) const;
  static Place FirstOf(const std::set<Place>& places);
  void AddToSpared(Group* group);
  void TakeFromSpared(const Group& group);
  // Whether all of its lineage may be awaited, too. Looks at no more chunks than may be.
  bool Fits(NodeId node);
  // Who comes last of those spared, of the line or of all; there are some.
  Spared::iterator LastOf(const WaitingLine* line);
  Spared::iterator Last();
  // The same, perhaps by turns as they were when the last request joined.
  const Spared::value_type& LastAsRemembered();
  // Of an idle chunk that the other policy may evict; Show makes it such a chunk again.
  void Spare(NodeId node);
  void Show(NodeId node);
  void AddGroup(std::unique_ptr<Group> group, NodeId node);
  void DropGroup(NodeId node);
  // Those that await `node`, which is about to leave, await `other`, or nothing if it is a root.
  void MoveTo(NodeId node, NodeId other);

  const std::unique_ptr<EvictionPolicy> policy_;
  const int32_t max_awaited_chunks_;
  int32_t awaited_chunks_ = 0;
  std::vector<Chunk> chunks_;  // [nodes]
  std::unordered_map<SequenceId, Waiting> waiting_;
  Spared spared_;
  std::optional<Spared::iterator> last_;
  std::optional<Place> gives_up_;  // who is giving up, until it awaits anew
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_AWAITING_POLICY_H_
