#include "kvcache/chunk_cache.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

namespace refrain::kvcache {

ChunkCache::ChunkCache(int32_t num_chunks, int32_t chunk_tokens, uint64_t hash_mask,
                       bool keeps_unused, std::unique_ptr<EvictionPolicy> policy)
    : keeps_unused_(keeps_unused),
      policy_(std::move(policy)),
      pool_(num_chunks),
      tree_(chunk_tokens, hash_mask) {}

// --- chunks and roots ---

void ChunkCache::MakeFree(int32_t num_chunks) {
  while (pool_.free_chunks() < num_chunks) {
    const std::optional<NodeId> victim = policy_->Victim();
    assert(victim.has_value());
    Evict(*victim);
  }
}

ChunkId ChunkCache::Allocate() {
  const std::optional<ChunkId> chunk = pool_.AllocateOrNull();
  assert(chunk.has_value());
  return *chunk;
}

NodeId ChunkCache::HoldRoot(const Namespace& name_space) {
  NodeId root = keeps_unused_ ? tree_.FindRootOrNone(name_space) : tree_.AddPrivateRoot(name_space);
  if (root == kNoNode) root = tree_.AddRoot(name_space);
  ++tree_.use(root).refs;
  return root;
}

void ChunkCache::UnholdRoot(NodeId root) {
  if (--tree_.use(root).refs == 0 && tree_.node(root).children.empty()) tree_.Remove(root);
}

// --- nodes in use ---

ChunkTraits ChunkCache::TraitsOf(NodeId id) const {
  const PrefixTree::Node& node = tree_.node(id);
  return {.depth_tokens = node.depth_tokens,
          .tokens = node.tokens,
          .reuse = node.use.reuse,
          .parent = node.parent,
          .lineage_hash = node.lineage_hash};
}

NodeId ChunkCache::AddNode(NodeId parent, ChunkId chunk, const TokenSpan& tokens,
                           ReuseClass reuse) {
  const NodeId node = tree_.AddChild(parent, chunk, tokens);
  tree_.use(node).refs = 1;
  tree_.use(node).reuse = reuse;
  tree_.use(node).last_use = requests_;
  policy_->Inserted(node, TraitsOf(node));
  DropCovered(node);
  return node;
}

void ChunkCache::Extend(NodeId node, const TokenSpan& tokens) {
  const bool moved = tree_.Extend(node, tokens);
  policy_->Changed(node, TraitsOf(node));
  if (moved) DropCovered(node);
}

void ChunkCache::Truncate(NodeId node, int32_t tokens) {
  tree_.Truncate(node, tokens);
  tree_.use(node).kept_tokens = std::min(use(node).kept_tokens, tokens);
  policy_->Changed(node, TraitsOf(node));
}

void ChunkCache::Hit(NodeId node, bool in_part) {
  NodeUse& use = tree_.use(node);
  ++use.hits;
  use.last_use = requests_;
  if (in_part) {
    policy_->HitInPart(node);
  } else {
    policy_->Hit(node);
  }
}

void ChunkCache::HoldBy(NodeId node, int32_t holders) {
  NodeUse& use = tree_.use(node);
  if (use.refs == 0) {
    if (use.pins == 0) {
      BecomeUsed(node);
    } else {
      ++use_stamp_;
    }
  }
  use.refs += holders;
}

void ChunkCache::Unhold(NodeId node) {
  NodeUse& use = tree_.use(node);
  assert(use.refs > 0);
  if (--use.refs > 0) return;
  if (use.pins > 0) {
    ++use_stamp_;
  } else if (keeps_unused_) {
    BecomeUnused(node);
  } else {
    Drop(node, kNoNode);
  }
}

void ChunkCache::HasLeft(NodeId node, AnswerEnd end) {
  Hold(node);  // idle chunks do not change
  policy_->Leaving(node, end);
  Unhold(node);
}

void ChunkCache::Replace(NodeId from, NodeId to) {
  NodeUse& use = tree_.use(from);
  assert(use.pins == 0);
  HoldBy(to, use.refs);
  use.refs = 0;
  Drop(from, to);
}

void ChunkCache::Pin(NodeId node) {
  for (; !tree_.node(node).is_root(); node = tree_.node(node).parent) {
    NodeUse& use = tree_.use(node);
    if (use.refs == 0 && use.pins == 0) BecomeUsed(node);
    ++use.pins;
  }
}

void ChunkCache::Unpin(NodeId node) {
  while (!tree_.node(node).is_root()) {
    const NodeId parent = tree_.node(node).parent;
    NodeUse& use = tree_.use(node);
    assert(use.pins > 0);
    if (--use.pins == 0 && use.refs == 0) BecomeUnused(node);
    node = parent;
  }
}

// --- nodes that nobody needs ---

void ChunkCache::BecomeUsed(NodeId node) {
  NodeUse& use = tree_.use(node);
  ++use_stamp_;
  --cached_chunks_;
  if (use.idle) policy_->Busy(node);
  use.idle = false;
}

void ChunkCache::BecomeUnused(NodeId node) {
  if (const NodeId cover = tree_.FindCoverOrNone(node); cover != kNoNode) {
    Drop(node, cover);
    return;
  }
  ++use_stamp_;
  ++cached_chunks_;
  if (!tree_.node(node).children.empty()) return;
  tree_.use(node).idle = true;
  policy_->Idle(node);
}

void ChunkCache::DropCovered(NodeId node) {
  for (const NodeId covered : tree_.CoveredNeighbours(node)) {
    if (covered == kNoNode || !use(covered).idle) continue;
    --cached_chunks_;
    Drop(covered, node);
  }
}

void ChunkCache::Drop(NodeId node, NodeId heir) {
  if (!use(node).idle) policy_->Idle(node);
  if (heir == kNoNode) {
    policy_->Dropped(node);
  } else {
    int32_t& kept = tree_.use(heir).kept_tokens;
    kept = std::max(kept, use(node).kept_tokens);
    policy_->Replaced(node, heir);
  }
  Remove(node);
}

void ChunkCache::Evict(NodeId node) {
  assert(use(node).idle);
  --cached_chunks_;
  ++evicted_chunks_total_;
  policy_->Evicted(node);
  Remove(node);
}

void ChunkCache::Remove(NodeId node) {
  const NodeId parent = tree_.node(node).parent;
  pool_.Release(tree_.node(node).chunk);
  tree_.Remove(node);
  const PrefixTree::Node& left = tree_.node(parent);
  if (!left.children.empty() || left.use.refs > 0 || left.use.pins > 0) return;
  if (left.is_root()) {
    tree_.Remove(parent);
  } else {
    tree_.use(parent).idle = true;
    policy_->Idle(parent);
  }
}

bool ChunkCache::EvictIfIdle(NodeId node) {
  if (!use(node).idle) return false;
  Evict(node);
  return true;
}

// The root stays as long as the node itself does.
int32_t ChunkCache::EvictFrom(NodeId node) {
  std::vector<NodeId> behind = tree_.node(node).children;
  for (size_t i = 0; i < behind.size(); ++i) {
    const std::vector<NodeId>& children = tree_.node(behind[i]).children;
    behind.insert(behind.end(), children.begin(), children.end());
  }
  int32_t evicted = 0;
  // Children before parents, and of siblings the last one first: it moves none.
  for (auto id = behind.rbegin(); id != behind.rend(); ++id) evicted += EvictIfIdle(*id) ? 1 : 0;
  return evicted + EvictUpwards(node);
}

int32_t ChunkCache::EvictUpwards(NodeId node) {
  int32_t evicted = 0;
  while (tree_.node(node).live && !tree_.node(node).is_root() && use(node).idle) {
    const NodeId parent = tree_.node(node).parent;
    Evict(node);
    ++evicted;
    node = parent;
  }
  return evicted;
}

bool ChunkCache::Keep(NodeId id, int32_t path_tokens) {
  const PrefixTree::Node& node = tree_.node(id);
  int32_t& kept = tree_.use(id).kept_tokens;
  const int32_t wanted = std::min(path_tokens - node.depth_tokens, node.tokens);
  if (wanted <= kept) return false;
  kept = wanted;
  return true;
}

void ChunkCache::Forget(NodeId id, int32_t kept_tokens) {
  for (;;) {
    const PrefixTree::Node& node = tree_.node(id);
    if (!node.live || node.is_root() || !node.use.idle) return;
    const int32_t left = kept_tokens == kForgetAll
                             ? 0
                             : std::max(kept_tokens - node.depth_tokens, node.use.kept_tokens);
    if (left >= node.tokens) return;
    if (left > 0) {
      BecomeUsed(id);  // idle chunks do not change
      Truncate(id, left);
      BecomeUnused(id);
      return;
    }
    const NodeId parent = node.parent;
    --cached_chunks_;
    Drop(id, kNoNode);
    id = parent;
  }
}

// --- invariants ---

absl::Status ChunkCache::CheckInvariants(const Holdings& holdings) const {
  const auto broken = [](NodeId node, const char* what) {
    return absl::InternalError("KV cache invariant: node " +
                               std::to_string(static_cast<int32_t>(node)) + " " + what);
  };
  const auto count = [](const std::unordered_map<NodeId, int32_t>& of, NodeId node) {
    const auto found = of.find(node);
    return found == of.end() ? 0 : found->second;
  };
  if (absl::Status status = tree_.CheckInvariants(); !status.ok()) return status;
  std::vector<int32_t> owners(static_cast<size_t>(pool_.total_chunks()), 0);
  for (const ChunkId chunk : holdings.reserved) ++owners[ToIndex(chunk)];
  int32_t cached = 0;
  for (int32_t i = 0; i < tree_.num_ids(); ++i) {
    const NodeId id{i};
    const PrefixTree::Node& node = tree_.node(id);
    if (!node.live) continue;
    if (node.use.refs != count(holdings.holders, id)) return broken(id, "miscounts its holders");
    if (node.is_root()) {
      if (node.use.refs == 0 && node.children.empty()) return broken(id, "is an empty root");
      continue;
    }
    ++owners[ToIndex(node.chunk)];
    if (count(holdings.writers, id) > 1) return broken(id, "is written by two");
    const PrefixTree::Node& parent = tree_.node(node.parent);
    if (!parent.is_root() && node.use.pins > parent.use.pins) {
      return broken(id, "is pinned, its parent is not");
    }
    if (node.use.kept_tokens > 0 && !parent.is_root() && parent.use.kept_tokens < parent.tokens) {
      return broken(id, "is kept, some of its parent is not");
    }
    const bool unused = node.use.refs == 0 && node.use.pins == 0;
    cached += unused ? 1 : 0;
    if (unused && !keeps_unused_) return broken(id, "stays though nothing is kept");
    if (unused && tree_.FindCoverOrNone(id) != kNoNode) {
      return broken(id, "repeats a sibling's tokens");
    }
    if (node.use.idle != (unused && node.children.empty())) return broken(id, "is idle or not");
  }
  int32_t used = -cached;
  for (size_t i = 0; i < owners.size(); ++i) {
    used += owners[i];
    if (owners[i] != (pool_.IsTaken(ChunkId{static_cast<int32_t>(i)}) ? 1 : 0)) {
      return absl::InternalError("KV cache invariant: chunk " + std::to_string(i) + " has " +
                                 std::to_string(owners[i]) + " owners");
    }
  }
  if (cached != cached_chunks_) {
    return absl::InternalError("KV cache invariant: " + std::to_string(cached) +
                               " chunks are cached, counted " + std::to_string(cached_chunks_));
  }
  if (pool_.free_chunks() + used + cached != pool_.total_chunks()) {
    return absl::InternalError("KV cache invariant: free " + std::to_string(pool_.free_chunks()) +
                               " + used " + std::to_string(used) + " + cached " +
                               std::to_string(cached) + " is not total " +
                               std::to_string(pool_.total_chunks()));
  }
  return absl::OkStatus();
}

}  // namespace refrain::kvcache
