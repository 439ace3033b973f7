#include <cassert>
#include <vector>

#include "kvcache/cache_manager.h"

namespace refrain::kvcache {

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
std::vector<NodeId> CacheManager::EndsOf(const Namespace& name_space,
                                         const TokenSpan& tokens) const {
  const NodeId root = tree().FindRootOrNone(name_space);
  if (root == kNoNode) return {};
  const PrefixTree::PrefixMatch found = tree().Match(root, tokens);
  if (found.num_tokens < static_cast<int32_t>(tokens.ids.size())) return {};
  const size_t rest_tokens = tokens.ids.size() % static_cast<size_t>(options_.chunk_tokens);
  if (rest_tokens == 0) return {found.node};
  return tree().ChildrenThatBeginWith(
      tree().node(found.node).parent,
      {tokens.ids.last(rest_tokens),
       tokens.positions.empty() ? tokens.positions : tokens.positions.last(rest_tokens)});
}

int32_t CacheManager::Drop(const Namespace& name_space, const TokenSpan& tokens) {
  const std::vector<NodeId> ends = EndsOf(name_space, tokens);
  int32_t dropped = 0;
  for (const NodeId end : ends) dropped += cache_.EvictFrom(end);
  const NodeId root = tree().FindRootOrNone(name_space);
  if (!ends.empty() || root == kNoNode) return dropped;
  const PrefixTree::PrefixMatch found = tree().Match(root, tokens);
  NodeId id = found.node;
  // A chunk that agrees with the prompt in its first tokens only is another prompt's.
  const bool part = found.num_tokens < tree().node(id).end_tokens();
  if (part && !tree().node(id).is_root()) id = tree().node(id).parent;
  return cache_.EvictUpwards(id);
}

}  // namespace refrain::kvcache
