#include "kvcache/lru_policy.h"

#include <cassert>

namespace refrain::kvcache {

void LruPolicy::Touch(NodeId node) {
  if (ToIndex(node) >= last_use_.size()) last_use_.resize(ToIndex(node) + 1, 0);
  last_use_[ToIndex(node)] = ++now_;
}

void LruPolicy::Hit(NodeId node) {
  const auto found = idle_.find({last_use_[ToIndex(node)], node});
  Touch(node);
  if (found == idle_.end()) return;
  idle_.erase(found);
  idle_.emplace(now_, node);
}

void LruPolicy::Inserted(NodeId node, const ChunkTraits&) { Touch(node); }

void LruPolicy::Changed(NodeId node, const ChunkTraits&) { Touch(node); }

void LruPolicy::Idle(NodeId node) {
  const bool inserted = idle_.emplace(last_use_[ToIndex(node)], node).second;
  assert(inserted);
  (void)inserted;
}

void LruPolicy::Busy(NodeId node) {
  const size_t erased = idle_.erase({last_use_[ToIndex(node)], node});
  assert(erased == 1);
  (void)erased;
}

void LruPolicy::Evicted(NodeId node) { Busy(node); }

void LruPolicy::Dropped(NodeId node) { Busy(node); }

std::optional<NodeId> LruPolicy::Victim() {
  if (idle_.empty()) return std::nullopt;
  return idle_.begin()->second;
}

}  // namespace refrain::kvcache
