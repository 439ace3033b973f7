// What running sequences hold, alone and together. A path may have thousands of chunks, and each
// step may ask. But who holds or pins a node does so with all before it: along a path as many
// holders are the same ones, and where their number falls, or the pins end, is found by bisection.

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "kvcache/cache_manager.h"

namespace refrain::kvcache {
namespace {

// How many of the first nodes of `path` have more than `floor` of what NodeUse counts in `count`,
// which only falls along a path.
size_t CountAbove(const PrefixTree& tree, std::span<const PathEntry> path, int32_t NodeUse::*count,
                  int32_t floor) {
  const auto above = [&](const PathEntry& entry) {
    return tree.node(entry.node).use.*count > floor;
  };
  // Mostly nothing is shared or pinned.
  if (path.empty() || !above(path.front())) return 0;
  return static_cast<size_t>(std::partition_point(path.begin() + 1, path.end(), above) -
                             path.begin());
}

}  // namespace

int32_t CacheManager::ExclusiveChunks(SequenceId sequence) const {
  const Sequence& of = Get(sequence);
  const size_t not_given_back = std::max(CountAbove(tree(), of.path, &NodeUse::refs, 1),
                                         CountAbove(tree(), of.path, &NodeUse::pins, 0));
  return static_cast<int32_t>(of.reserved.size() + of.path.size() - not_given_back);
}

SharedRuns CacheManager::FindSharedRuns(std::span<const SequenceId> sequences) const {
  SharedRuns found;
  found.last_runs.reserve(sequences.size());
  absl::flat_hash_map<NodeId, int32_t> run_that_ends_at;
  for (const SequenceId sequence : sequences) {
    int32_t last_run = -1;
    int32_t run = -1;
    const std::span<const PathEntry> path = Get(sequence).path;
    std::span<const PathEntry> shared = path.first(CountAbove(tree(), path, &NodeUse::refs, 1));
    while (!shared.empty()) {
      const NodeId last = shared.back().node;
      const auto [known, is_new] =
          run_that_ends_at.try_emplace(last, static_cast<int32_t>(found.runs.size()));
      (run >= 0 ? found.runs[run].parent : last_run) = known->second;
      if (!is_new) break;  // and all above it is there
      run = known->second;
      const int32_t holders = tree().node(last).use.refs;
      const size_t begin = CountAbove(tree(), shared, &NodeUse::refs, holders);
      const size_t pinned = CountAbove(tree(), shared, &NodeUse::pins, 0);
      const auto chunks = static_cast<int32_t>(shared.size() - std::max(begin, pinned));
      found.runs.push_back({.chunks = chunks, .holders = holders});
      shared = shared.first(begin);
    }
    found.last_runs.push_back(last_run);
  }
  return found;
}

}  // namespace refrain::kvcache
