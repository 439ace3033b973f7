#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcache/cache_manager.h"
#include "kvcache/cache_view.h"

namespace refrain::kvcache {

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

}  // namespace refrain::kvcache
