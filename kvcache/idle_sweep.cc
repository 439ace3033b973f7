#include "kvcache/idle_sweep.h"

#include <algorithm>
#include <utility>

namespace refrain::kvcache {

bool IdleSweep::EvictSome(CacheManager* cache) {
  switch (phase_) {
    case Phase::kFindRoots:
      FindRoots(cache->tree());
      return true;
    case Phase::kList:
      List(cache->tree());
      return true;
    case Phase::kEvict:
      return Evict(cache);
  }
  return false;
}

void IdleSweep::FindRoots(const PrefixTree& tree) {
  const int32_t end = std::min(tree.num_ids(), next_id_ + pace_.ids);
  for (; next_id_ < end; ++next_id_) {
    const PrefixTree::Node& node = tree.node(NodeId{next_id_});
    if (node.live && node.is_root()) first_.push_back(NodeId{next_id_});
  }
  if (next_id_ < tree.num_ids()) return;
  now_ = first_;
  phase_ = Phase::kList;
}

void IdleSweep::List(const PrefixTree& tree) {
  for (int32_t i = 0; i < pace_.listed; ++i) {
    if (!now_.empty()) {
      const NodeId id = now_.back();
      if (IsOwn(tree, id) && !tree.node(id).children.empty()) parents_.push_back(id);
      now_.pop_back();
    } else if (next_parent_ < parents_.size()) {
      const NodeId parent = parents_[next_parent_++];
      if (IsOwn(tree, parent)) now_ = tree.node(parent).children;
    } else {
      phase_ = Phase::kEvict;
      return;
    }
  }
}

bool IdleSweep::Evict(CacheManager* cache) {
  const PrefixTree& tree = cache->tree();
  for (int32_t i = 0; i < pace_.evicted; ++i) {
    if (!now_.empty()) {
      const NodeId id = now_.back();
      if (IsOwn(tree, id) && cache->EvictIfIdle(id)) ++evicted_chunks_;
      now_.pop_back();
    } else if (!parents_.empty()) {
      const NodeId parent = parents_.back();
      if (IsOwn(tree, parent)) now_ = tree.node(parent).children;
      parents_.pop_back();
    } else if (!first_.empty()) {
      now_ = std::exchange(first_, {});
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace refrain::kvcache
