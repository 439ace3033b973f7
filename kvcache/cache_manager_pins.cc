#include <cassert>
#include <vector>

#include "kvcache/cache_manager.h"

namespace refrain::kvcache {
namespace {

// Children of `parent` that begin with `rest`, which is shorter than a chunk.
std::vector<NodeId> ChildrenThatBeginWith(const PrefixTree& tree, NodeId parent,
                                          const TokenSpan& rest, int32_t begin) {
  std::vector<NodeId> found;
  for (const NodeId id : tree.node(parent).children) {
    const PrefixTree::Node& node = tree.node(id);
    if (node.tokens < static_cast<int32_t>(rest.ids.size())) continue;
    bool equal = true;
    for (size_t i = 0; equal && i < rest.ids.size(); ++i) {
      const int32_t place = begin + static_cast<int32_t>(i);
      const int32_t wanted = rest.positions.empty() ? place : rest.positions[i];
      const int32_t position = node.positions != nullptr ? node.positions[i] : place;
      equal = tree.ids(id)[i] == rest.ids[i] && position == wanted;
    }
    if (equal) found.push_back(id);
  }
  return found;
}

}  // namespace

int32_t CacheManager::Pin(const Namespace& name_space, const TokenSpan& tokens) {
  const NodeId root = tree().FindRootOrNone(name_space);
  if (root == kNoNode) return 0;
  const PrefixTree::PrefixMatch found = tree().Match(root, tokens);
  NodeId id = found.node;
  if (found.num_tokens % options_.chunk_tokens != 0) id = tree().node(id).parent;
  const int32_t pinned = found.num_tokens - found.num_tokens % options_.chunk_tokens;
  cache_.Pin(id);
  return pinned;
}

void CacheManager::Unpin(const Namespace& name_space, const TokenSpan& tokens,
                         int32_t pinned_tokens) {
  if (pinned_tokens == 0) return;
  const size_t count = static_cast<size_t>(pinned_tokens);
  const TokenSpan pinned{tokens.ids.first(count), tokens.positions.empty()
                                                      ? tokens.positions
                                                      : tokens.positions.first(count)};
  const PrefixTree::PrefixMatch found = tree().Match(tree().FindRootOrNone(name_space), pinned);
  assert(found.num_tokens == pinned_tokens);
  cache_.Unpin(found.node);
}

// The end of the prompt may stand in several chunks, each with another continuation.
int32_t CacheManager::Drop(const Namespace& name_space, const TokenSpan& tokens) {
  int32_t dropped = 0;
  for (;;) {
    const NodeId root = tree().FindRootOrNone(name_space);
    if (root == kNoNode) return dropped;
    const PrefixTree::PrefixMatch found = tree().Match(root, tokens);
    const bool whole_prompt = found.num_tokens == static_cast<int32_t>(tokens.ids.size());
    NodeId id = found.node;
    // A chunk that agrees with the prompt in its first tokens only is another prompt's.
    const bool part = found.num_tokens < tree().node(id).end_tokens();
    if (!whole_prompt && part && !tree().node(id).is_root()) id = tree().node(id).parent;
    int32_t chunks = 0;
    const int32_t rest_tokens = found.num_tokens % options_.chunk_tokens;
    if (whole_prompt && rest_tokens > 0) {
      const auto begin = static_cast<size_t>(found.num_tokens - rest_tokens);
      const TokenSpan rest{tokens.ids.subspan(begin), tokens.positions.empty()
                                                          ? tokens.positions
                                                          : tokens.positions.subspan(begin)};
      for (const NodeId child : ChildrenThatBeginWith(tree(), tree().node(id).parent, rest,
                                                      static_cast<int32_t>(begin))) {
        chunks += cache_.EvictFrom(child);
      }
    } else {
      chunks = whole_prompt ? cache_.EvictFrom(id) : cache_.EvictUpwards(id);
    }
    dropped += chunks;
    if (chunks == 0 || !whole_prompt) return dropped;
  }
}

}  // namespace refrain::kvcache
