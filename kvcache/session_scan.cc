#include "kvcache/session_scan.h"

#include <algorithm>
#include <tuple>

namespace refrain::kvcache {

bool SessionScan::FindSome(const CacheManager& cache) {
  const PrefixTree& tree = cache.tree();
  const int32_t end = std::min(tree.num_ids(), next_id_ + kStepNodes);
  for (; next_id_ < end; ++next_id_) {
    const NodeId id{next_id_};
    const PrefixTree::Node& node = tree.node(id);
    if (!node.live || node.is_root() || !node.children.empty()) continue;
    leaves_.push_back({id, node.use.last_use, node.end_tokens()});
  }
  return next_id_ < tree.num_ids();
}

void SessionScan::Choose() {
  list_.total_sessions = static_cast<int32_t>(leaves_.size());
  const size_t listed = std::min(leaves_.size(), static_cast<size_t>(std::max(max_sessions_, 0)));
  // Of those that one request made the longest first.
  const auto before = [](const Leaf& a, const Leaf& b) {
    return std::make_tuple(-a.last_use, -a.end_tokens, a.id) <
           std::make_tuple(-b.last_use, -b.end_tokens, b.id);
  };
  std::partial_sort(leaves_.begin(), leaves_.begin() + static_cast<ptrdiff_t>(listed),
                    leaves_.end(), before);
  leaves_.resize(listed);
  list_.sessions.reserve(listed);
}

bool SessionScan::DescribeSome(const CacheManager& cache) {
  constexpr int64_t kStepWalkedNodes = kStepNodes / 4;
  const PrefixTree& tree = cache.tree();
  const int64_t end = walked_nodes_ + kStepWalkedNodes;
  while (next_leaf_ < leaves_.size() && walked_nodes_ < end) {
    const NodeId id = leaves_[next_leaf_++].id;
    const PrefixTree::Node& node = tree.node(id);
    if (node.live && !node.is_root() && node.children.empty()) Describe(cache, id);
    ++walked_nodes_;
  }
  return next_leaf_ < leaves_.size();
}

NodeId SessionScan::RootOf(const PrefixTree& tree, NodeId id) {
  std::vector<NodeId> way;
  for (; !tree.node(id).is_root(); id = tree.node(id).parent) {
    const auto known = known_roots_.find(id);
    if (known != known_roots_.end() && known->second.stamp == tree.NodeStamp(id)) {
      id = known->second.root;
      break;
    }
    way.push_back(id);
  }
  for (const NodeId node : way) known_roots_[node] = {tree.NodeStamp(node), id};
  walked_nodes_ += static_cast<int64_t>(way.size());
  return id;
}

void SessionScan::Describe(const CacheManager& cache, NodeId id) {
  const PrefixTree& tree = cache.tree();
  const PrefixTree::Node& leaf = tree.node(id);
  CacheSession& session = list_.sessions.emplace_back();
  session.leaf = id;
  session.num_tokens = leaf.end_tokens();
  session.num_chunks = leaf.depth_nodes;
  session.sharers = leaf.use.refs;
  session.hits = leaf.use.hits;
  session.age_requests = cache.requests() - leaf.use.last_use;
  NodeId shared = id;  // the last node that others have as well, or the root
  for (; !tree.node(shared).is_root() && tree.node(shared).children.size() <= 1;
       shared = tree.node(shared).parent) {
    ++session.own_chunks;
  }
  walked_nodes_ += session.own_chunks;
  const NodeId root = RootOf(tree, shared);
  const bool whole = tree.IsFull(id) || tree.node(leaf.parent).is_root();
  session.pinned = (whole ? leaf : tree.node(leaf.parent)).use.pins > 0;
  const Namespace& name_space = tree.roots().at(root);
  session.tenant = name_space.tenant;
  session.salted = !name_space.cache_salt.empty();
}

}  // namespace refrain::kvcache
