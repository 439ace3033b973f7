#ifndef REFRAIN_KVCACHE_PREFIX_TREE_H_
#define REFRAIN_KVCACHE_PREFIX_TREE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcache/types.h"

namespace refrain::kvcache {

// What must be equal before tokens are compared (DESIGN section 1).
struct Namespace {
  std::string tenant;      // "" when tenants share
  std::string cache_salt;  // from the request
  friend bool operator==(const Namespace&, const Namespace&) = default;
};

// Tokens with their positions; `positions` empty means 0, 1, 2, ...
struct TokenSpan {
  std::span<const TokenId> ids;
  std::span<const int32_t> positions;
};

// The longest known prefix of some tokens, token by token.
struct PrefixMatch {
  // Path from below the root, in order; all of each node's tokens match, but perhaps the last's.
  std::vector<NodeId> path;
  int32_t last_node_tokens = 0;  // matching tokens of path.back()
  int32_t num_tokens = 0;        // in all
};

// Forest of chunks: a path from a root spells a token sequence, ids and positions (DESIGN 4.1).
//
//   root(ns) -- [chunk 0, full] -- [chunk 1, full] -- [chunk 2, 17 tokens, being written]
//                               \- [chunk 1', full; its first 40 tokens equal chunk 1's]
//
// Every node has one chunk of at most `chunk_tokens` tokens; only a full node has children. A
// sequence that diverges inside a chunk gets a node of its own whose first tokens repeat its
// sibling's. Full children are found by a hash of (parent, ids, positions), ids compared after; the
// best part match among the children of the last node by their order, so neither depends on how
// many children there are.
//
// Knows structure only: who runs, what may be evicted and which chunk ids are free is the cache
// manager's business. Single thread. Misuse (removing a node with children) asserts.
