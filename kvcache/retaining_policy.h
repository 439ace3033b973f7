#ifndef REFRAIN_KVCACHE_RETAINING_POLICY_H_
#define REFRAIN_KVCACHE_RETAINING_POLICY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcache/eviction_policy.h"

namespace refrain::kvcache {

// Honours Retain on behalf of another policy: a retained chunk that becomes idle is not shown to
// the other policy, for which it stays in use, until
//
//   - nothing else can be evicted but what is awaited (AwaitingPolicy), or
//   - more than `max_retained_chunks` are retained, idle or not.
//
// Then the lineage that was retained or used longest ago gives up first, from its end to its
// beginning: a chunk that gives up is the other policy's like any, and no longer retained. So the
// hint costs those who do not use it at most that share of the pool, and never makes a request
// wait.
//
// Where too many are retained, that is a lineage of the tenant that retains most, so that nobody's
// hints undo another's. A chunk counts as the tenant's who first had it retained.
//
// Only the end of a lineage is ever idle, so the retained chunks are counted, not the idle ones:
//
//   A - B - C - d      A, B and C retained, d an answer's: nothing but d is idle
//         \ E - F      E and F retained: the ends are C and F
//
// A tenant whose chunks all have another's behind them has no end, and gives up none.
//
// Called by ChunkCache alone, through EvictionPolicy. O(log n) per call of a retained chunk.
class RetainingPolicy final : public EvictionPolicy {
 public:
  RetainingPolicy(std::unique_ptr<EvictionPolicy> policy, int32_t max_retained_chunks);

  void RequestJoined() override { policy_->RequestJoined(); }
  void Hit(NodeId node) override;
  void HitInPart(NodeId node) override;
  void Inserted(NodeId node, const ChunkTraits& traits) override;
  void Changed(NodeId node, const ChunkTraits& traits) override { policy_->Changed(node, traits); }
  void Idle(NodeId node) override;
  void Busy(NodeId node) override;
  void Evicted(NodeId node) override;
  void Dropped(NodeId node) override;
  // What was retained stays so, in the other chunk.
  void Replaced(NodeId node, NodeId by) override;
  std::optional<NodeId> Victim() override;
  // Of a chunk after those before it; one behind a chunk that has given up is not retained.
  void Retain(NodeId node, std::string_view tenant) override;
  void Leaving(NodeId node, AnswerEnd end) override { policy_->Leaving(node, end); }

 private:
  // Who gives up first is the lowest: minus how many chunks it retains, then its first end's
  // number.
  using Rank = std::pair<int32_t, uint64_t>;
  struct Tenant {
    std::string name;
    int32_t chunks = 0;               // retained; without any it is gone
    std::map<uint64_t, NodeId> ends;  // those without retained children; longest ago first
    Rank rank;                        // of by_rank_; {}: it has no ends
  };
  struct Chunk {
    NodeId parent{-1};
    int32_t retained_children = 0;
    Tenant* tenant = nullptr;  // null: not retained
    uint64_t end_number = 0;   // among its tenant's ends; 0: not there
    bool known = false;        // else it is a root, or nothing
    bool idle = false;         // which the other policy knows unless it is retained
    bool retained() const { return tenant != nullptr; }
  };

  Chunk& Get(NodeId node) { return chunks_[ToIndex(node)]; }
  Chunk* ParentOrNull(const Chunk& chunk);
  Tenant* TenantOf(std::string_view name);
  // So many more chunks than before.
  void Count(Tenant* tenant, int32_t chunks);
  void RankAgain(Tenant* tenant);
  void MakeEnd(NodeId node, uint64_t number);
  void TakeFromEnds(Chunk* chunk);
  void UseAgain(NodeId node);
  // No longer retained; an end. The other policy is told when it is idle.
  void GiveUp(NodeId node);
  // An idle chunk that leaves is one of the other policy's first: it knows no other way.
  void HandOver(NodeId node);

  const std::unique_ptr<EvictionPolicy> policy_;
  const int32_t max_retained_chunks_;
  int32_t retained_chunks_ = 0;
  std::vector<Chunk> chunks_;  // [nodes]
  std::map<std::string, Tenant, std::less<>> tenants_;
  std::map<Rank, Tenant*> by_rank_;
  std::map<uint64_t, NodeId> idle_;  // ends that are idle; longest ago first
  uint64_t last_number_ = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_RETAINING_POLICY_H_
