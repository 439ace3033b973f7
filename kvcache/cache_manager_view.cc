#include <algorithm>
#include <deque>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/cache_manager.h"
#include "kvcache/cache_view.h"

namespace refrain::kvcache {
namespace {

// Goes no way twice: thousands of sessions may share a long beginning.
NodeId RootOf(const PrefixTree& tree, NodeId id, std::unordered_map<NodeId, NodeId>* known) {
  std::vector<NodeId> way;
  auto found = known->end();
  for (; !tree.node(id).is_root(); id = tree.node(id).parent) {
    found = known->find(id);
    if (found != known->end()) break;
    way.push_back(id);
  }
  const NodeId root = found != known->end() ? found->second : id;
  for (const NodeId node : way) known->emplace(node, root);
  return root;
}

}  // namespace

// Breadth first, so that a cut view shows what most requests have in common. The work is in
// proportion to what is shown, and to the running sequences; a look at each namespace beside it.
CacheView CacheManager::Describe(const CacheViewLimits& limits) const {
  CacheView view;
  view.stats = stats();
  view.total_nodes = tree().num_nodes();

  std::unordered_map<NodeId, SequenceId> writers;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.tail == Sequence::Tail::kWritten) writers[sequence.path.back().node] = id;
  }
  std::vector<std::pair<NodeId, const Namespace*>> roots;
  for (const auto& [root, name_space] : tree().roots()) roots.emplace_back(root, &name_space);
  view.total_namespaces = static_cast<int32_t>(roots.size());
  const size_t shown_roots =
      std::min(roots.size(), static_cast<size_t>(std::max(limits.max_nodes, 0)));
  std::partial_sort(roots.begin(), roots.begin() + static_cast<ptrdiff_t>(shown_roots),
                    roots.end());
  roots.resize(shown_roots);

  std::deque<std::pair<NodeId, int32_t>> next;  // children of this node, of that namespace
  for (const auto& [root, name_space] : roots) {
    next.emplace_back(root, static_cast<int32_t>(view.namespaces.size()));
    view.namespaces.push_back(
        {.tenant = name_space->tenant,
         .salted = !name_space->cache_salt.empty(),
         .first_chunks = static_cast<int32_t>(tree().node(root).children.size())});
  }
  while (!next.empty()) {
    const auto [parent, name_space] = next.front();
    next.pop_front();
    for (const NodeId id : tree().node(parent).children) {
      const PrefixTree::Node& node = tree().node(id);
      if (static_cast<int32_t>(view.nodes.size()) >= limits.max_nodes) return view;
      CacheViewNode& shown = view.nodes.emplace_back();
      shown.id = id;
      if (!tree().node(parent).is_root()) shown.parent = parent;
      shown.name_space = name_space;
      shown.chunk = node.chunk;
      shown.depth = node.depth_nodes;
      shown.num_tokens = node.tokens;
      shown.num_children = static_cast<int32_t>(node.children.size());
      shown.sharers = node.use.refs;
      shown.hits = node.use.hits;
      shown.age_requests = cache_.requests() - node.use.last_use;
      shown.pinned = node.use.pins > 0;
      if (const auto writer = writers.find(id); writer != writers.end()) {
        shown.writer = writer->second;
      }
      if (node.depth_nodes < limits.max_depth) next.emplace_back(id, name_space);
    }
  }
  return view;
}

SessionList CacheManager::ListSessions(int32_t max_sessions) const {
  std::vector<NodeId> leaves;
  for (int32_t index = 0; index < tree().num_ids(); ++index) {
    const PrefixTree::Node& node = tree().node(NodeId{index});
    if (node.live && !node.is_root() && node.children.empty()) leaves.push_back(NodeId{index});
  }
  SessionList list{.total_sessions = static_cast<int32_t>(leaves.size())};
  const size_t listed = std::min(leaves.size(), static_cast<size_t>(std::max(max_sessions, 0)));
  // Of those that one request made the longest first.
  const auto before = [this](NodeId a, NodeId b) {
    const PrefixTree::Node& x = tree().node(a);
    const PrefixTree::Node& y = tree().node(b);
    return std::make_tuple(-x.use.last_use, -x.end_tokens(), a) <
           std::make_tuple(-y.use.last_use, -y.end_tokens(), b);
  };
  std::partial_sort(leaves.begin(), leaves.begin() + static_cast<ptrdiff_t>(listed), leaves.end(),
                    before);
  leaves.resize(listed);

  std::unordered_map<NodeId, NodeId> root_of_shared;
  for (const NodeId id : leaves) {
    const PrefixTree::Node& leaf = tree().node(id);
    CacheSession& session = list.sessions.emplace_back();
    session.leaf = id;
    session.num_tokens = leaf.end_tokens();
    session.num_chunks = leaf.depth_nodes;
    session.sharers = leaf.use.refs;
    session.hits = leaf.use.hits;
    session.age_requests = cache_.requests() - leaf.use.last_use;
    NodeId shared = id;  // the last node that others have as well, or the root
    for (; !tree().node(shared).is_root() && tree().node(shared).children.size() <= 1;
         shared = tree().node(shared).parent) {
      ++session.own_chunks;
    }
    const NodeId root = RootOf(tree(), shared, &root_of_shared);
    const bool whole = tree().IsFull(id) || tree().node(leaf.parent).is_root();
    session.pinned = (whole ? leaf : tree().node(leaf.parent)).use.pins > 0;
    const Namespace& name_space = tree().roots().at(root);
    session.tenant = name_space.tenant;
    session.salted = !name_space.cache_salt.empty();
  }
  return list;
}

}  // namespace refrain::kvcache
