#ifndef REFRAIN_TOOLS_CACHESIM_FURTHEST_USE_POLICY_H_
#define REFRAIN_TOOLS_CACHESIM_FURTHEST_USE_POLICY_H_

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kvcache/eviction_policy.h"

namespace refrain::cachesim {

// The oracle: evicts the idle chunk whose next use is furthest away, never-used-again first. Knows
// the future because the simulator tells it, one request ahead of the calls of EvictionPolicy.
// Needs one token to the chunk, and one request at a time.
class FurthestUsePolicy : public kvcache::EvictionPolicy {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // Of the request about to join: when each of its blocks is used again.
  void NextRequest(std::span<const int64_t> next_uses) { next_uses_ = next_uses; }

  void RequestJoined() override { hits_ = 0; }
  void Hit(kvcache::NodeId node) override;
  void Inserted(kvcache::NodeId node, const kvcache::ChunkTraits& traits) override;
  void Changed(kvcache::NodeId, const kvcache::ChunkTraits&) override {}
  void Idle(kvcache::NodeId node) override;
  void Busy(kvcache::NodeId node) override;
  void Evicted(kvcache::NodeId node) override { Busy(node); }
  void Dropped(kvcache::NodeId node) override { Busy(node); }
  std::optional<kvcache::NodeId> Victim() override;

 private:
  std::span<const int64_t> next_uses_;
  size_t hits_ = 0;
  std::vector<int64_t> next_use_;                       // [nodes]
  std::set<std::pair<int64_t, kvcache::NodeId>> idle_;  // by next use
};

}  // namespace refrain::cachesim

#endif  // REFRAIN_TOOLS_CACHESIM_FURTHEST_USE_POLICY_H_
