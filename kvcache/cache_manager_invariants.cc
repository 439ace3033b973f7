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
  if (order_.size() != sequences_.size()) {
    return Broken(order_.size(), " sequences in order, ", sequences_.size(), " running");
  }
  Holdings holdings;
  std::vector<bool> slots(slot_taken_.size(), false);
  int64_t logical_tokens = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (absl::Status status = CheckSequence(id, &holdings); !status.ok()) return status;
    const size_t slot = ToIndex(sequence.slot);
    if (slots[slot]) return Broken("two sequences in slot ", slot);
    slots[slot] = true;
    logical_tokens += sequence.appended_tokens;
  }
  if (slots != slot_taken_) return Broken("a slot is taken by no sequence");
  if (logical_tokens != totals_.logical_tokens) {
    return Broken(logical_tokens, " tokens appended, ", totals_.logical_tokens, " counted");
  }
  return cache_.CheckInvariants(holdings);
}

// Path, chunks and counts; what it holds is added to `holdings`.
absl::Status CacheManager::CheckSequence(SequenceId id, Holdings* holdings) const {
  const Sequence& s = Get(id);
  const auto name = static_cast<uint64_t>(id);
  ++holdings->holders[s.root];
  NodeId last = s.root;
  for (const PathEntry& entry : s.path) {
    const PrefixTree::Node& node = tree().node(entry.node);
    if (!node.live || node.parent != last || node.chunk != entry.chunk ||
        node.depth_tokens != entry.key_begin) {
      return Broken("sequence ", name, " has lost its path at token ", entry.key_begin);
    }
    ++holdings->holders[entry.node];
    last = entry.node;
  }
  holdings->reserved.insert(holdings->reserved.end(), s.reserved.begin(), s.reserved.end());
  const PrefixTree::Node& tail = tree().node(last);
  const bool full = s.path.empty() || tree().IsFull(last);
  switch (s.tail) {
    case Sequence::Tail::kWhole:
      if (!full || s.published_tokens != tail.end_tokens()) {
        return Broken("sequence ", name, " has ", s.published_tokens, " tokens, its whole chunks ",
                      tail.end_tokens());
      }
      break;
    case Sequence::Tail::kWritten:
      ++holdings->writers[last];
      if (full || s.published_tokens != tail.end_tokens()) {
        return Broken("sequence ", name, " published ", s.published_tokens,
                      " tokens, those in the chunk that it writes end at ", tail.end_tokens());
      }
      break;
    case Sequence::Tail::kPart:
      if (s.published_tokens > tail.end_tokens() || s.published_tokens <= tail.depth_tokens) {
        return Broken("sequence ", name, " holds no part of its last chunk");
      }
      break;
  }
  if (s.appended_tokens < s.published_tokens || s.appended_tokens > reserved_tokens(id)) {
    return Broken("sequence ", name, " has ", s.appended_tokens, " tokens, ", s.published_tokens,
                  " published, chunks for ", reserved_tokens(id));
  }
  return absl::OkStatus();
}

}  // namespace refrain::kvcache
