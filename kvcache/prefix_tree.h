#ifndef REFRAIN_KVCACHE_PREFIX_TREE_H_
#define REFRAIN_KVCACHE_PREFIX_TREE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kvcache/eviction_policy.h"
#include "kvcache/types.h"

namespace refrain::kvcache {

// What must be equal before tokens are compared (DESIGN section 1).
struct Namespace {
  std::string tenant;      // "" when tenants share
  std::string cache_salt;  // from the request
  friend bool operator==(const Namespace&, const Namespace&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Namespace& n) {
    return H::combine(std::move(h), n.tenant, n.cache_salt);
  }
};

// Tokens with their positions; `positions` empty means 0, 1, 2, ...
struct TokenSpan {
  std::span<const TokenId> ids;
  std::span<const int32_t> positions;
};

inline constexpr NodeId kNoNode{-1};

// What the cache manager knows of a node; the tree only keeps it.
struct NodeUse {
  int64_t hits = 0;      // requests that matched it
  int64_t last_use = 0;  // number of the request that matched it, or made it, last
  int32_t refs = 0;      // running sequences that hold it
  int32_t pins = 0;
  // So many of its first tokens were left by a sequence that may be continued.
  int32_t kept_tokens = 0;
  ReuseClass reuse = ReuseClass::kPrompt;
  bool idle = false;  // the eviction policy may name it
};

// Forest of chunks: a path from a root spells a token sequence, ids and positions (DESIGN 4.1).
//
//   root(ns) -- [chunk 0, full] -- [chunk 1, full] -- [chunk 2, 17 tokens, being written]
//                               \- [chunk 1', full; its first 40 tokens equal chunk 1's]
//
// Every node has one chunk of at most `chunk_tokens` tokens; only a full node has children. A
// sequence that diverges inside a chunk gets a node of its own whose first tokens repeat its
// sibling's. Full siblings differ; part-full ones may be equal, or a prefix of another.
//
// Full children are found by one hash map from the hash of a whole lineage (namespace, ids,
// positions) to nodes, ids compared after. Clients choose ids, so that the hash has a secret of
// this tree: else they could choose such as share a hash and have each walk past all others. Part
// matches are found by order: the children of a node are sorted by their tokens, so the longest
// common prefix is with a neighbour of the place where the wanted tokens would stand. Neither cost
// depends on how many children there are, nor on how many chunks; adding and removing a child moves
// 4 bytes per sibling behind it.
//
// A node that grows keeps its place unless it was a prefix of a sibling; `nested` remembers that it
// may be, so that the usual growth (one token, a diverged tail) compares nothing.
//
// Stamps come from one counter and tell whether a match still holds and could not be longer. A node
// has three: of when its id was given to it or it was cut (what it spelled may be gone), of when it
// grew last, and of when its children might match better: one came, or grew though it was nested.
//
// Knows structure only: who runs, what may be evicted and which chunk ids are free is the cache
// manager's business. Single thread. Misuse (removing a node with children) asserts.
class PrefixTree {
 public:
  struct Node {
    uint64_t lineage_hash = 0;  // roots and full nodes; 0 else
    uint64_t made_stamp = 0, grown_stamp = 0, children_stamp = 0;
    NodeId parent = kNoNode;   // kNoNode: a root
    ChunkId chunk{-1};         // -1: a root
    int32_t depth_tokens = 0;  // tokens before it
    int32_t depth_nodes = 0;   // nodes from the root to it; 0: a root
    int32_t tokens = 0;
    bool live = false;
    bool nested = false;  // its tokens may be a prefix of a sibling's, or equal
    NodeId next_of_hash = kNoNode;
    std::vector<NodeId> children;          // sorted by tokens, then by id
    std::unique_ptr<int32_t[]> positions;  // [chunk_tokens]; null: depth_tokens, +1, +2, ...
    NodeUse use;

    bool is_root() const { return parent == kNoNode; }
    int32_t end_tokens() const { return depth_tokens + tokens; }
  };

  // Why a match is not longer: all that was wanted is there; or the next token in `node` is another
  // one; or there is none in it, and nothing behind or beside it that goes on as wanted.
  enum class MatchEnd : uint8_t { kWanted, kParted, kNode };
  // The longest known prefix of some tokens, token by token.
  struct PrefixMatch {
    NodeId node = kNoNode;   // the last node that matches, or the root
    int32_t num_tokens = 0;  // in all; behind `node`'s first tokens when it matches in part
    MatchEnd end = MatchEnd::kNode;
  };

  // `hash_mask`: the bits of a lineage's hash that count. Fewer, in tests, let lineages meet in
  // one.
  explicit PrefixTree(int32_t chunk_tokens, uint64_t hash_mask = ~uint64_t{0});

  // --- queries ---
  const Node& node(NodeId id) const {
    return blocks_[ToIndex(id) / kBlockNodes]->nodes[ToIndex(id) % kBlockNodes];
  }
  NodeUse& use(NodeId id) { return Get(id).use; }
  bool IsFull(NodeId id) const { return node(id).tokens == chunk_tokens_; }
  std::span<const TokenId> ids(NodeId id) const {
    return {Ids(id), static_cast<size_t>(node(id).tokens)};
  }
  NodeId FindRootOrNone(const Namespace& name_space) const;
  // All, private ones too.
  const absl::flat_hash_map<NodeId, Namespace>& roots() const { return root_names_; }
  // `from`: a root, or a full node whose path spells the first of the tokens.
  PrefixMatch Match(NodeId from, const TokenSpan& tokens) const;
  // Whether there are tokens behind what matched: else all of it was what some sequence ended with.
  bool GoesOn(const PrefixMatch& match) const;
  // Changes when the node's tokens may not be those any more that a match found. 0: no such node.
  uint64_t NodeStamp(NodeId id) const;
  // Changes then, and when the same tokens might be matched further. 0: no such node.
  uint64_t MatchStamp(const PrefixMatch& match) const;
  // Whatever is made, cut or grows from now on gets a larger stamp.
  uint64_t last_stamp() const { return last_stamp_; }
  // Changes whenever a root is added.
  uint64_t roots_stamp() const { return roots_stamp_; }
  // The child with exactly these `chunk_tokens` tokens. Positions are given.
  NodeId FindFullChildOrNone(NodeId parent, const TokenSpan& chunk) const;
  // Those whose first tokens are these, fewer than `chunk_tokens` and one at least.
  std::vector<NodeId> ChildrenThatBeginWith(NodeId parent, const TokenSpan& tokens) const;
  // A sibling whose first tokens are all of its tokens.
  NodeId FindCoverOrNone(NodeId id) const;
  // Of the siblings beside it in order, those all of whose tokens are its first tokens. There are
  // no others as long as such siblings are removed unless somebody holds them.
  std::array<NodeId, 2> CoveredNeighbours(NodeId id) const;
  int32_t num_nodes() const { return num_nodes_; }                       // without roots
  int32_t num_ids() const { return static_cast<int32_t>(nodes_made_); }  // live ones are below
  absl::Status CheckInvariants() const;

  // --- commands ---
  NodeId AddRoot(const Namespace& name_space);
  NodeId AddPrivateRoot(const Namespace& name_space);  // found by nobody
  // A new last child in `chunk`: 1 to chunk_tokens tokens, positions given.
  NodeId AddChild(NodeId parent, ChunkId chunk, const TokenSpan& tokens);
  // More tokens for a part-full node, positions given. True when it has found a new place among
  // its siblings, that is when CoveredNeighbours may have something new to say.
  bool Extend(NodeId id, const TokenSpan& tokens);
  // Keeps the first `tokens` tokens (at least one) of a node without children.
  void Truncate(NodeId id, int32_t tokens);
  // A node or root without children.
  void Remove(NodeId id);

 private:
  static constexpr size_t kBlockNodes = 256;
  // Nodes come in blocks, so that they stay where they are and cost nothing before they are used.
  struct Block {
    Node nodes[kBlockNodes];
    std::unique_ptr<TokenId[]> ids;  // [kBlockNodes, chunk_tokens]
  };
  // Tokens of a chunk, or some first ones of them; `positions` null: depth_tokens, +1, +2, ...
  struct Piece {
    const TokenId* ids;
    const int32_t* positions;
    int32_t tokens;
    int32_t depth_tokens;
    int32_t position(int32_t i) const {
      return positions != nullptr ? positions[i] : depth_tokens + i;
    }
  };

  Node& Get(NodeId id) { return const_cast<Node&>(std::as_const(*this).node(id)); }
  const TokenId* Ids(NodeId id) const;
  Piece PieceOf(NodeId id) const;
  Piece MakePiece(const TokenSpan& span, int32_t begin, int32_t tokens, int32_t depth_tokens) const;
  static int32_t CommonTokens(const Piece& a, const Piece& b);
  static int Compare(const Piece& a, const Piece& b);
  static bool IsPrefix(const Piece& a, const Piece& b);
  uint64_t Hash(const void* data, size_t size_bytes) const;
  uint64_t Mix(uint64_t a, uint64_t b) const;
  uint64_t LineageHash(uint64_t parent_hash, const Piece& full) const;

  NodeId NewNode(NodeId parent);
  NodeId FindHashed(NodeId parent, uint64_t hash, const Piece& full) const;
  PrefixMatch MatchPart(NodeId parent, const Piece& rest) const;
  // Where `id` stands among its siblings, or would.
  size_t PlaceOf(NodeId id) const;
  void Place(NodeId id);
  void Unplace(NodeId id);
  void StorePositions(NodeId id, int32_t begin, const TokenSpan& tokens);
  void AddHash(NodeId id);
  void RemoveHash(NodeId id);
  uint64_t NewStamp() { return ++last_stamp_; }

  const int32_t chunk_tokens_;
  const uint64_t hash_mask_;
  std::array<uint64_t, 24> hash_secret_;  // as long as XXH3's own
  std::vector<std::unique_ptr<Block>> blocks_;
  size_t nodes_made_ = 0;                          // ids given out so far
  std::deque<NodeId> free_;                        // of those, the ones to use again; none is moved
  absl::flat_hash_map<uint64_t, NodeId> by_hash_;  // lineage hash -> full nodes, chained
  absl::flat_hash_map<Namespace, NodeId> roots_;   // without private ones
  absl::flat_hash_map<NodeId, Namespace> root_names_;
  uint64_t last_stamp_ = 1;
  uint64_t roots_stamp_ = 1;
  int32_t num_nodes_ = 0;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_PREFIX_TREE_H_
