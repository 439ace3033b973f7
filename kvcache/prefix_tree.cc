#include "kvcache/prefix_tree.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <random>

namespace refrain::kvcache {

PrefixTree::PrefixTree(int32_t chunk_tokens, uint64_t hash_mask)
    : chunk_tokens_(chunk_tokens), hash_mask_(hash_mask) {
  assert(chunk_tokens >= 1);
  std::random_device device;
  for (uint64_t& word : hash_secret_) word = uint64_t{device()} << 32 | device();
}

// --- hashes ---

uint64_t PrefixTree::Hash(const void* data, size_t size_bytes) const {
  return XXH3_64bits_withSecret(data, size_bytes, hash_secret_.data(), sizeof(hash_secret_));
}

uint64_t PrefixTree::Mix(uint64_t a, uint64_t b) const {
  const uint64_t both[2] = {a, b};
  return Hash(both, sizeof(both));
}

uint64_t PrefixTree::LineageHash(uint64_t parent_hash, const Piece& full) const {
  const size_t bytes = static_cast<size_t>(full.tokens) * sizeof(TokenId);
  uint64_t hash = Mix(parent_hash, Hash(full.ids, bytes));
  if (full.positions != nullptr) hash = Mix(hash, Hash(full.positions, bytes));
  return hash & hash_mask_;
}

// --- pieces ---

const TokenId* PrefixTree::Ids(NodeId id) const {
  return blocks_[ToIndex(id) / kBlockNodes]->ids.get() +
         ToIndex(id) % kBlockNodes * static_cast<size_t>(chunk_tokens_);
}

PrefixTree::Piece PrefixTree::PieceOf(NodeId id) const {
  const Node& of = node(id);
  return {Ids(id), of.positions.get(), of.tokens, of.depth_tokens};
}

PrefixTree::Piece PrefixTree::MakePiece(const TokenSpan& span, int32_t begin, int32_t tokens,
                                        int32_t depth_tokens) const {
  Piece piece{span.ids.data() + begin, nullptr, tokens, depth_tokens};
  if (span.positions.empty()) return piece;
  const int32_t* positions = span.positions.data() + begin;
  for (int32_t i = 0; i < tokens; ++i) {
    if (positions[i] != depth_tokens + i) {
      piece.positions = positions;
      break;
    }
  }
  return piece;
}

int32_t PrefixTree::CommonTokens(const Piece& a, const Piece& b) {
  const int32_t limit = std::min(a.tokens, b.tokens);
  int32_t common = 0;
  if (a.positions == nullptr && b.positions == nullptr) {
    while (common < limit && a.ids[common] == b.ids[common]) ++common;
  } else {
    while (common < limit && a.ids[common] == b.ids[common] &&
           a.position(common) == b.position(common)) {
      ++common;
    }
  }
  return common;
}

// Lexicographic; the symbols are pairs of id and position, a prefix stands first.
int PrefixTree::Compare(const Piece& a, const Piece& b) {
  const int32_t common = CommonTokens(a, b);
  if (common == a.tokens || common == b.tokens) return a.tokens - b.tokens;
  if (a.ids[common] != b.ids[common]) return a.ids[common] < b.ids[common] ? -1 : 1;
  return a.position(common) < b.position(common) ? -1 : 1;
}

bool PrefixTree::IsPrefix(const Piece& a, const Piece& b) {
  return a.tokens <= b.tokens && CommonTokens(a, b) == a.tokens;
}

// --- finding ---

NodeId PrefixTree::FindRootOrNone(const Namespace& name_space) const {
  const auto found = roots_.find(name_space);
  return found == roots_.end() ? kNoNode : found->second;
}

NodeId PrefixTree::FindHashed(NodeId parent, uint64_t hash, const Piece& full) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return kNoNode;
  for (NodeId id = found->second; id != kNoNode; id = node(id).next_of_hash) {
    if (node(id).parent == parent && CommonTokens(PieceOf(id), full) == full.tokens) return id;
  }
  return kNoNode;
}

NodeId PrefixTree::FindFullChildOrNone(NodeId parent, const TokenSpan& chunk) const {
  assert(static_cast<int32_t>(chunk.ids.size()) == chunk_tokens_);
  const Piece full = MakePiece(chunk, 0, chunk_tokens_, node(parent).end_tokens());
  return FindHashed(parent, LineageHash(node(parent).lineage_hash, full), full);
}

PrefixTree::PrefixMatch PrefixTree::Match(NodeId from, const TokenSpan& tokens) const {
  const int32_t num_tokens = static_cast<int32_t>(tokens.ids.size());
  NodeId at = from;
  int32_t matched = node(from).end_tokens();
  uint64_t hash = node(from).lineage_hash;
  while (num_tokens - matched >= chunk_tokens_) {
    const Piece full = MakePiece(tokens, matched, chunk_tokens_, matched);
    hash = LineageHash(hash, full);
    const NodeId child = FindHashed(at, hash, full);
    if (child == kNoNode) break;
    at = child;
    matched += chunk_tokens_;
  }
  PrefixMatch match{at, matched};
  if (matched < num_tokens && !node(at).children.empty()) {
    match = MatchPart(
        at, MakePiece(tokens, matched, std::min(num_tokens - matched, chunk_tokens_), matched));
  }
  if (match.num_tokens == num_tokens) {
    match.end = MatchEnd::kWanted;
  } else if (match.num_tokens < node(match.node).end_tokens()) {
    match.end = MatchEnd::kParted;
  }
  return match;
}

PrefixTree::PrefixMatch PrefixTree::MatchPart(NodeId parent, const Piece& rest) const {
  const std::vector<NodeId>& children = node(parent).children;
  const auto behind = std::partition_point(children.begin(), children.end(), [&](NodeId child) {
    return Compare(PieceOf(child), rest) < 0;
  });
  PrefixMatch best{parent, rest.depth_tokens};
  const auto consider = [&](NodeId child) {
    const int32_t matched = rest.depth_tokens + CommonTokens(PieceOf(child), rest);
    if (matched > best.num_tokens) best = {child, matched};
  };
  if (behind != children.end()) consider(*behind);
  if (behind != children.begin()) consider(*std::prev(behind));
  return best;
}

std::vector<NodeId> PrefixTree::ChildrenThatBeginWith(NodeId parent,
                                                      const TokenSpan& tokens) const {
  const std::vector<NodeId>& children = node(parent).children;
  const Piece wanted =
      MakePiece(tokens, 0, static_cast<int32_t>(tokens.ids.size()), node(parent).end_tokens());
  const auto begin = std::partition_point(children.begin(), children.end(), [&](NodeId child) {
    return Compare(PieceOf(child), wanted) < 0;
  });
  const auto end = std::partition_point(
      begin, children.end(), [&](NodeId child) { return IsPrefix(wanted, PieceOf(child)); });
  return {begin, end};
}

bool PrefixTree::GoesOn(const PrefixMatch& match) const {
  const Node& last = node(match.node);
  if (match.num_tokens < last.end_tokens() || !last.children.empty()) return true;
  if (!last.nested) return false;
  const std::vector<NodeId>& siblings = node(last.parent).children;
  const Piece own = PieceOf(match.node);
  for (size_t i = PlaceOf(match.node) + 1; i < siblings.size(); ++i) {
    if (!IsPrefix(own, PieceOf(siblings[i]))) return false;
    if (node(siblings[i]).tokens > last.tokens) return true;
  }
  return false;
}

uint64_t PrefixTree::NodeStamp(NodeId id) const {
  if (id == kNoNode || ToIndex(id) >= nodes_made_ || !node(id).live) return 0;
  return node(id).made_stamp;
}

// Stamps only grow, so the largest one changes when any does.
uint64_t PrefixTree::MatchStamp(const PrefixMatch& match) const {
  const uint64_t made = NodeStamp(match.node);
  if (made == 0 || match.end == MatchEnd::kWanted) return made;
  const Node& last = node(match.node);
  const bool has_all =
      last.is_root() || (match.num_tokens == last.end_tokens() && IsFull(match.node));
  // Behind a part of a node a sibling might match further.
  const uint64_t others = has_all ? last.children_stamp : node(last.parent).children_stamp;
  return std::max({made, others, match.end == MatchEnd::kNode ? last.grown_stamp : 0});
}

// --- order among siblings ---

size_t PrefixTree::PlaceOf(NodeId id) const {
  const std::vector<NodeId>& siblings = node(node(id).parent).children;
  const Piece own = PieceOf(id);
  const auto place = std::partition_point(siblings.begin(), siblings.end(), [&](NodeId other) {
    if (other == id) return false;
    const int order = Compare(PieceOf(other), own);
    return order != 0 ? order < 0 : other < id;
  });
  return static_cast<size_t>(place - siblings.begin());
}

void PrefixTree::Place(NodeId id) {
  std::vector<NodeId>& siblings = Get(node(id).parent).children;
  const size_t place = PlaceOf(id);
  siblings.insert(siblings.begin() + static_cast<ptrdiff_t>(place), id);
  Node& placed = Get(id);
  const Piece own = PieceOf(id);
  placed.nested = false;
  // Whoever is a prefix of another stands before all that begin like it: neighbours tell.
  if (place > 0) {
    const NodeId before = siblings[place - 1];
    if (IsPrefix(PieceOf(before), own)) {
      Get(before).nested = true;
      placed.nested = node(before).tokens == placed.tokens;
    }
  }
  if (place + 1 < siblings.size()) {
    const NodeId behind = siblings[place + 1];
    if (IsPrefix(own, PieceOf(behind))) {
      placed.nested = true;
      if (node(behind).tokens == placed.tokens) Get(behind).nested = true;
    }
  }
}

void PrefixTree::Unplace(NodeId id) {
  std::vector<NodeId>& siblings = Get(node(id).parent).children;
  const size_t place = PlaceOf(id);
  assert(siblings[place] == id);
  siblings.erase(siblings.begin() + static_cast<ptrdiff_t>(place));
}

NodeId PrefixTree::FindCoverOrNone(NodeId id) const {
  if (!node(id).nested) return kNoNode;
  const std::vector<NodeId>& siblings = node(node(id).parent).children;
  const size_t place = PlaceOf(id);
  const Piece own = PieceOf(id);
  if (place + 1 < siblings.size() && IsPrefix(own, PieceOf(siblings[place + 1]))) {
    return siblings[place + 1];
  }
  const bool repeats = place > 0 && Compare(PieceOf(siblings[place - 1]), own) == 0;
  return repeats ? siblings[place - 1] : kNoNode;
}

std::array<NodeId, 2> PrefixTree::CoveredNeighbours(NodeId id) const {
  std::array<NodeId, 2> covered = {kNoNode, kNoNode};
  const std::vector<NodeId>& siblings = node(node(id).parent).children;
  if (siblings.size() == 1) return covered;
  const size_t place = PlaceOf(id);
  const Piece own = PieceOf(id);
  if (place > 0 && IsPrefix(PieceOf(siblings[place - 1]), own)) covered[0] = siblings[place - 1];
  if (place + 1 < siblings.size() && Compare(own, PieceOf(siblings[place + 1])) == 0) {
    covered[1] = siblings[place + 1];
  }
  return covered;
}

// --- nodes ---

NodeId PrefixTree::NewNode(NodeId parent) {
  NodeId id;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    if (nodes_made_ % kBlockNodes == 0) {
      auto block = std::make_unique<Block>();
      // Not value-initialised: ids are written before they are read.
      block->ids.reset(new TokenId[kBlockNodes * static_cast<size_t>(chunk_tokens_)]);
      blocks_.push_back(std::move(block));
    }
    id = NodeId{static_cast<int32_t>(nodes_made_++)};
  }
  Node& made = Get(id);
  made.live = true;
  made.parent = parent;
  made.made_stamp = NewStamp();
  return id;
}

NodeId PrefixTree::AddRoot(const Namespace& name_space) {
  assert(!roots_.contains(name_space));
  const NodeId id = NewNode(kNoNode);
  const auto hash = [this](const std::string& text) { return Hash(text.data(), text.size()); };
  Get(id).lineage_hash = Mix(hash(name_space.tenant), hash(name_space.cache_salt));
  roots_[name_space] = id;
  root_names_[id] = name_space;
  roots_stamp_ = NewStamp();
  return id;
}

NodeId PrefixTree::AddPrivateRoot(const Namespace& name_space) {
  const NodeId id = NewNode(kNoNode);
  // Nobody else's lineage: equal prompts must not fill one chain of the hash map.
  Get(id).lineage_hash = Mix(node(id).made_stamp, ~uint64_t{0});
  root_names_[id] = name_space;
  return id;
}

NodeId PrefixTree::AddChild(NodeId parent, ChunkId chunk, const TokenSpan& tokens) {
  assert(node(parent).is_root() || IsFull(parent));
  const NodeId id = NewNode(parent);
  Node& made = Get(id);
  made.chunk = chunk;
  made.depth_tokens = node(parent).end_tokens();
  made.depth_nodes = node(parent).depth_nodes + 1;
  StorePositions(id, 0, tokens);
  Place(id);
  AddHash(id);
  Get(parent).children_stamp = NewStamp();
  ++num_nodes_;
  return id;
}

bool PrefixTree::Extend(NodeId id, const TokenSpan& tokens) {
  Node& grown = Get(id);
  const bool moves = grown.nested;
  if (moves) Unplace(id);
  StorePositions(id, grown.tokens, tokens);
  if (moves) {
    Place(id);
    // It may match better now than the sibling that it was a prefix of.
    Get(grown.parent).children_stamp = NewStamp();
  }
  AddHash(id);
  grown.grown_stamp = NewStamp();
  return moves;
}

void PrefixTree::Truncate(NodeId id, int32_t tokens) {
  Node& cut = Get(id);
  assert(cut.children.empty() && tokens >= 1 && tokens <= cut.tokens);
  RemoveHash(id);
  Unplace(id);
  cut.tokens = tokens;
  Place(id);
  cut.made_stamp = NewStamp();
  AddHash(id);
}

void PrefixTree::Remove(NodeId id) {
  Node& gone = Get(id);
  assert(gone.live && gone.children.empty());
  if (gone.is_root()) {
    const auto name = root_names_.find(id);
    if (FindRootOrNone(name->second) == id) roots_.erase(name->second);
    root_names_.erase(name);
  } else {
    RemoveHash(id);
    Unplace(id);
    --num_nodes_;
  }
  gone = Node();
  free_.push_back(id);
}

void PrefixTree::StorePositions(NodeId id, int32_t begin, const TokenSpan& tokens) {
  Node& stored = Get(id);
  const int32_t count = static_cast<int32_t>(tokens.ids.size());
  assert(count >= 1 && begin + count <= chunk_tokens_ &&
         tokens.positions.size() == tokens.ids.size());
  std::copy(tokens.ids.begin(), tokens.ids.end(), const_cast<TokenId*>(Ids(id)) + begin);
  const bool plain = MakePiece(tokens, 0, count, stored.depth_tokens + begin).positions == nullptr;
  if (!plain && stored.positions == nullptr) {
    stored.positions = std::make_unique<int32_t[]>(static_cast<size_t>(chunk_tokens_));
    for (int32_t i = 0; i < begin; ++i)
      stored.positions[static_cast<size_t>(i)] = stored.depth_tokens + i;
  }
  if (stored.positions != nullptr) {
    std::copy(tokens.positions.begin(), tokens.positions.end(), stored.positions.get() + begin);
  }
  stored.tokens = begin + count;
}

void PrefixTree::AddHash(NodeId id) {
  if (!IsFull(id)) return;
  Node& full = Get(id);
  Piece own = PieceOf(id);
  // A hash must not depend on how the positions are written down.
  own.positions =
      MakePiece({{own.ids, static_cast<size_t>(own.tokens)},
                 own.positions == nullptr
                     ? std::span<const int32_t>()
                     : std::span<const int32_t>(own.positions, static_cast<size_t>(own.tokens))},
                0, own.tokens, own.depth_tokens)
          .positions;
  full.lineage_hash = LineageHash(node(full.parent).lineage_hash, own);
  NodeId& head = by_hash_.try_emplace(full.lineage_hash, kNoNode).first->second;
  full.next_of_hash = head;
  head = id;
}

void PrefixTree::RemoveHash(NodeId id) {
  if (!IsFull(id)) return;
  Node& full = Get(id);
  const auto found = by_hash_.find(full.lineage_hash);
  NodeId* link = &found->second;
  while (*link != id) link = &Get(*link).next_of_hash;
  *link = full.next_of_hash;
  if (found->second == kNoNode) by_hash_.erase(found);
  full.next_of_hash = kNoNode;
  full.lineage_hash = 0;
}

}  // namespace refrain::kvcache
