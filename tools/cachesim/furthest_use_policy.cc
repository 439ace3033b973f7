#include "tools/cachesim/furthest_use_policy.h"

namespace refrain::cachesim {

using kvcache::NodeId;

void FurthestUsePolicy::Hit(NodeId node) {
  const bool idle = idle_.erase({next_use_[ToIndex(node)], node}) > 0;
  next_use_[ToIndex(node)] = next_uses_[hits_++];
  if (idle) Idle(node);
}

void FurthestUsePolicy::Inserted(NodeId node, const kvcache::ChunkTraits& traits) {
  if (ToIndex(node) >= next_use_.size()) next_use_.resize(ToIndex(node) + 1);
  next_use_[ToIndex(node)] = next_uses_[static_cast<size_t>(traits.depth_tokens)];
}

void FurthestUsePolicy::Idle(NodeId node) { idle_.emplace(next_use_[ToIndex(node)], node); }

void FurthestUsePolicy::Busy(NodeId node) { idle_.erase({next_use_[ToIndex(node)], node}); }

std::optional<NodeId> FurthestUsePolicy::Victim() {
  if (idle_.empty()) return std::nullopt;
  return idle_.rbegin()->second;
}

}  // namespace refrain::cachesim
