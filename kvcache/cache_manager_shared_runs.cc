// What running sequences hold together.

#include "absl/container/flat_hash_map.h"
#include "kvcache/cache_manager.h"

namespace refrain::kvcache {

// Who holds a node holds its parent, so along a path as many holders are the same ones.
SharedRuns CacheManager::FindSharedRuns(std::span<const SequenceId> sequences) const {
  SharedRuns found;
  found.last_runs.reserve(sequences.size());
  absl::flat_hash_map<NodeId, int32_t> run_that_ends_at;
  for (const SequenceId sequence : sequences) {
    int32_t last_run = -1;
    int32_t run = -1;
    const std::vector<PathEntry>& path = Get(sequence).path;
    for (auto entry = path.rbegin(); entry != path.rend(); ++entry) {
      const NodeUse& use = tree().node(entry->node).use;
      if (use.refs <= 1) continue;
      const int32_t chunks = use.pins == 0 ? 1 : 0;
      if (run >= 0 && found.runs[run].holders == use.refs) {
        found.runs[run].chunks += chunks;
        continue;
      }
      const auto [known, is_new] =
          run_that_ends_at.try_emplace(entry->node, static_cast<int32_t>(found.runs.size()));
      (run >= 0 ? found.runs[run].parent : last_run) = known->second;
      if (!is_new) break;  // and all above it is there
      run = known->second;
      found.runs.push_back({.chunks = chunks, .holders = use.refs});
    }
    found.last_runs.push_back(last_run);
  }
  return found;
}

}  // namespace refrain::kvcache
