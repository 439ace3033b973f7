#include "kvcache/attention_plan_builder.h"

#include <algorithm>

namespace refrain::kvcache {
namespace {

class Builder {
 public:
  Builder(const PrefixTree& tree, int32_t chunk_tokens)
      : tree_(tree), chunk_tokens_(chunk_tokens) {}

  // `group` shares its first `depth` nodes.
  void AddGroup(std::span<PlanSequence> group, size_t depth) {
    if (group.size() == 1) {
      AddAlone(group[0], depth);
      return;
    }
    const auto next_node = [depth](const PlanSequence& s) {
      return s.path.size() > depth ? s.path[depth].node : kNoNode;
    };
    const auto by_next = [&](const PlanSequence& a, const PlanSequence& b) {
      return next_node(a) < next_node(b);
    };
    if (!std::is_sorted(group.begin(), group.end(), by_next)) {
      std::sort(group.begin(), group.end(), by_next);
    }
    for (size_t begin = 0; begin < group.size();) {
      const NodeId node = next_node(group[begin]);
      size_t end = begin + 1;
      while (node != kNoNode && end < group.size() && next_node(group[end]) == node) ++end;
      const std::span<PlanSequence> part = group.subspan(begin, end - begin);
      if (part.size() == 1) {
        AddAlone(part[0], depth);
      } else {
        AddShared(part, depth);
      }
      begin = end;
    }
  }

  AttentionPlan Take() { return std::move(plan_); }

 private:
  // The run that all of `group` share from `depth` on, and all behind it.
  void AddShared(std::span<PlanSequence> group, size_t depth) {
    const std::span<const PathEntry> path = group[0].path;
    const int32_t sharers = static_cast<int32_t>(group.size());
    const auto end = std::partition_point(
        path.begin() + static_cast<ptrdiff_t>(depth), path.end(),
        [&](const PathEntry& entry) { return tree_.node(entry.node).use.refs == sharers; });
    const size_t common = static_cast<size_t>(end - path.begin());
    BeginRun();
    AddChunks(path.subspan(depth, common - depth));
    const size_t slot_begin = plan_.slots.size();
    plan_.slots.resize(slot_begin + group.size());
    EndRun();
    // Orders them, before they are written down: those that go on together stand together.
    AddGroup(group, common);
    const int32_t capacity_end = path[common - 1].key_begin + chunk_tokens_;
    for (size_t i = 0; i < group.size(); ++i) {
      const std::span<const PathEntry> of = group[i].path;
      PlanSlot& slot = plan_.slots[slot_begin + i];
      slot = {group[i].slot, path[depth].key_begin, std::nullopt};
      // Not with the tree as it is: children begin behind full chunks only. It is for modules,
      // whose chunks may end part-full.
      if (of.size() > common && of[common].key_begin != capacity_end) {
        slot.key_end = of[common].key_begin;
      }
    }
  }

  // Everything of one sequence from `depth` on.
  void AddAlone(const PlanSequence& sequence, size_t depth) {
    const std::span<const PathEntry> path = sequence.path.subspan(depth);
    if (path.empty() && sequence.own_chunks.empty()) return;
    BeginRun();
    AddChunks(path);
    const int32_t key_begin = path.empty() ? sequence.own_begin : path[0].key_begin;
    int32_t token_begin = sequence.own_begin - key_begin;
    for (const ChunkId chunk : sequence.own_chunks) {
      plan_.chunks.push_back({chunk, token_begin});
      token_begin += chunk_tokens_;
    }
    plan_.slots.push_back({sequence.slot, key_begin, std::nullopt});
    EndRun();
  }

  void BeginRun() {
    run_.chunk_begin = static_cast<int32_t>(plan_.chunks.size());
    run_.slot_begin = static_cast<int32_t>(plan_.slots.size());
  }
  void AddChunks(std::span<const PathEntry> path) {
    for (const PathEntry& entry : path) {
      plan_.chunks.push_back({entry.chunk, entry.key_begin - path[0].key_begin});
    }
  }
  void EndRun() {
    run_.chunk_end = static_cast<int32_t>(plan_.chunks.size());
    run_.slot_end = static_cast<int32_t>(plan_.slots.size());
    plan_.runs.push_back(run_);
  }

  const PrefixTree& tree_;
  const int32_t chunk_tokens_;
  AttentionPlan plan_;
  PlanRun run_{};
};

}  // namespace

AttentionPlan BuildAttentionPlan(const PrefixTree& tree, int32_t chunk_tokens,
                                 std::span<PlanSequence> sequences) {
  Builder builder(tree, chunk_tokens);
  if (!sequences.empty()) builder.AddGroup(sequences, 0);
  return builder.Take();
}

}  // namespace refrain::kvcache
