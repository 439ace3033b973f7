#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "kvcache/cache_manager.h"

namespace refrain::kvcache {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("KV cache invariant: ", parts...));
}

}  // namespace

absl::Status CacheManager::CheckInvariants() const {
  if (absl::Status status = tree_.CheckInvariants(); !status.ok()) return status;
  std::unordered_map<NodeId, int32_t> holders;
  if (absl::Status status = CheckSequences(&holders); !status.ok()) return status;
  return CheckNodes(holders);
}

// Each sequence's path, chunks and counts; how many hold each node.
absl::Status CacheManager::CheckSequences(std::unordered_map<NodeId, int32_t>* holders) const {
  if (order_.size() != sequences_.size()) {
    return Broken(order_.size(), " sequences in order, ", sequences_.size(), " running");
  }
  std::vector<bool> slots(slot_taken_.size(), false);
  int64_t logical_tokens = 0;
  for (const auto& [id, s] : sequences_) {
    const auto name = static_cast<uint64_t>(id);
    if (slots[ToIndex(s.slot)]) return Broken("two sequences in one slot, one is ", name);
    slots[ToIndex(s.slot)] = true;
    ++(*holders)[s.root];
    NodeId parent = s.root;
    int32_t tokens = 0;
    for (const PathEntry& entry : s.path) {
      const PrefixTree::Node& node = tree_.node(entry.node);
      if (!node.live || node.parent != parent || node.chunk != entry.chunk ||
          node.depth_tokens != entry.key_begin) {
        return Broken("sequence ", name, " has lost its path at token ", entry.key_begin);
      }
      ++(*holders)[entry.node];
      parent = entry.node;
      tokens = node.end_tokens();
    }
    const bool whole = s.tail == Sequence::Tail::kWhole;
    const bool written = s.tail == Sequence::Tail::kWritten;
    if (whole || written ? s.published_tokens != tokens : s.published_tokens > tokens) {
      return Broken("sequence ", name, " published ", s.published_tokens, " tokens, its path has ",
                    tokens);
    }
    if (whole && !s.path.empty() && !tree_.IsFull(parent)) {
      return Broken("sequence ", name, " ends in a part-full chunk");
    }
    if (written && (tree_.IsFull(parent) || !tree_.node(parent).use.has_writer)) {
      return Broken("sequence ", name, " may not write the chunk that it writes");
    }
    if (s.appended_tokens < s.published_tokens || s.appended_tokens > reserved_tokens(id)) {
      return Broken("sequence ", name, " has ", s.appended_tokens, " tokens, ", s.published_tokens,
                    " published, chunks for ", reserved_tokens(id));
    }
    logical_tokens += s.appended_tokens;
  }
  if (slots != slot_taken_) return Broken("a slot is taken by no sequence");
  if (logical_tokens != totals_.logical_tokens) {
    return Broken(logical_tokens, " tokens appended, ", totals_.logical_tokens, " counted");
  }
  return absl::OkStatus();
}

// Counts at the nodes, and that each chunk has exactly one owner.
absl::Status CacheManager::CheckNodes(const std::unordered_map<NodeId, int32_t>& holders) const {
  std::vector<int32_t> owners(static_cast<size_t>(pool_.total_chunks()), 0);
  std::unordered_map<NodeId, int32_t> writers;
  for (const auto& [id, s] : sequences_) {
    for (const ChunkId chunk : s.reserved) ++owners[ToIndex(chunk)];
    if (s.tail == Sequence::Tail::kWritten) ++writers[s.path.back().node];
  }
  int32_t cached = 0;
  for (int32_t i = 0; i < tree_.num_ids(); ++i) {
    const NodeId id{i};
    const PrefixTree::Node& node = tree_.node(id);
    if (!node.live) continue;
    const auto held = holders.find(id);
    if (node.use.refs != (held == holders.end() ? 0 : held->second)) {
      return Broken("node ", i, " has ", node.use.refs, " refs");
    }
    if (node.is_root()) {
      if (node.use.refs == 0 && node.children.empty()) return Broken("root ", i, " is empty");
      continue;
    }
    ++owners[ToIndex(node.chunk)];
    const auto writing = writers.find(id);
    if (node.use.has_writer != (writing != writers.end()) ||
        (node.use.has_writer && writing->second != 1)) {
      return Broken("node ", i, " does not know its writer");
    }
    const NodeUse& above = tree_.node(node.parent).use;
    if (!tree_.node(node.parent).is_root() && node.use.pins > above.pins) {
      return Broken("node ", i, " is pinned, its parent is not");
    }
    const bool unused = node.use.refs == 0 && node.use.pins == 0;
    cached += unused ? 1 : 0;
    if (unused && !options_.prefix_cache) return Broken("node ", i, " stays without a cache");
    if (node.use.idle != (unused && node.children.empty())) {
      return Broken("node ", i, node.use.idle ? " is" : " is not", " idle");
    }
    if (unused && tree_.IsCovered(id)) return Broken("node ", i, " repeats a sibling's tokens");
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    const bool taken = pool_.IsTaken(ChunkId{static_cast<int32_t>(i)});
    if (owners[i] != (taken ? 1 : 0)) return Broken("chunk ", i, " has ", owners[i], " owners");
  }
  const CacheStats now = stats();
  if (cached != now.cached_chunks ||
      now.free_chunks + now.used_chunks + now.cached_chunks != now.total_chunks) {
    return Broken(cached, " chunks cached; counted: free ", now.free_chunks, ", used ",
                  now.used_chunks, ", cached ", now.cached_chunks, " of ", now.total_chunks);
  }
  return absl::OkStatus();
}

}  // namespace refrain::kvcache
