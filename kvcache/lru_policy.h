#ifndef REFRAIN_KVCACHE_LRU_POLICY_H_
#define REFRAIN_KVCACHE_LRU_POLICY_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kvcache/eviction_policy.h"

namespace refrain::kvcache {

// Evicts what was hit or written least recently.
//
// A chunk that becomes idle because its last child went keeps the time of its own last use, which
// is earlier than its child's unless a request came for it alone: a lineage that nobody came back
// for goes from its end to its beginning, before any later one.
class LruPolicy : public EvictionPolicy {
 public:
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
  void Touch(NodeId node);

  uint64_t now_ = 0;
  std::vector<uint64_t> last_use_;              // [nodes]
  std::set<std::pair<uint64_t, NodeId>> idle_;  // last use first
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_LRU_POLICY_H_
