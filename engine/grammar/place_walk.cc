#include "engine/grammar/place_walk.h"

#include <xxhash.h>

#include <algorithm>

namespace refrain::engine {
namespace {

using kvcache::TokenId;

// As a Step takes so many times as long as a node whose spot is known.
constexpr uint64_t kWorkOfStep = 25, kWorkOfPlace = 8;

uint32_t HashOf(const PlaceSet& set) {
  static_assert(sizeof(Place) == 8, "no bytes between the fields");
  return static_cast<uint32_t>(XXH3_64bits(set.places.data(), set.places.size() * sizeof(Place)));
}

}  // namespace

PlaceWalk::PlaceWalk(const Grammar* grammar, const TokenTrie* trie, const FrameArena* base)
    : grammar_(*grammar), trie_(*trie), frames_(base == nullptr ? FrameArena() : FrameArena(base)) {
  Clear();
}

void PlaceWalk::StartFromState(StateId state) {
  set_ = {.places = {Place{state, kNobody}}};
  start_ = IdOf(set_);
}

void PlaceWalk::StartFromCalled(StateId state, StateId back) {
  set_ = {.places = {Place{state, frames_.Push(back, kNobody)}}};
  start_ = IdOf(set_);
}

void PlaceWalk::StartFrom(std::span<const Place> places) {
  set_.places.assign(places.begin(), places.end());
  set_.ended = set_.overrun = false;
  mover_.Close(grammar_, &frames_, &set_);
  start_ = IdOf(set_);
}

// Tokens lie in the order of the nodes, so those of nodes that were passed are added when the first
// one that is not allowed comes.
void PlaceWalk::AddAllowed(uint32_t node, TokenSet* allowed, std::vector<uint32_t>* ends) {
  const TokenTrie::Node* const nodes = trie_.nodes().data();
  const std::span<const TokenId> tokens = trie_.tokens();
  const uint32_t end = nodes[node].end;
  const size_t top = nodes[node].depth;
  std::array<SpotId, Grammar::kTwinBytes + 1> path;  // by depth
  path[top] = start_;
  uint32_t first = trie_.tokens_begin(node + 1);  // that was passed and not yet added
  const auto leave = [&](uint32_t last_passed, uint32_t next) {
    const uint32_t behind = trie_.tokens_begin(last_passed + 1);
    for (; first < behind; ++first) allowed->Add(tokens[first]);
    first = trie_.tokens_begin(next);
  };
  for (uint32_t i = node + 1; i < end && work_ <= kMostWork;) {
    ++work_;
    const TokenTrie::Node& here = nodes[i];
    SpotId spot = rows_[path[here.depth - 1u]][here.byte];
    if (spot == kUnknown) [[unlikely]] {
      if (spots_.size() >= kMostSpots) ForgetBut(std::span(path).subspan(top, here.depth - top));
      spot = FindNext(path[here.depth - 1u], here.byte);
    }
    if (spot == kDead) {
      leave(i - 1, here.end);
      i = here.end;
      continue;
    }
    path[here.depth] = spot;
    const Spot& known = spots_[spot];
    if (known.ended && ends != nullptr && here.end > i + 1) ends->push_back(i);
    if (known.size == 0) {
      leave(i, here.end);
      i = here.end;
      continue;
    }
    ++i;
  }
  leave(end - 1, end);
}

PlaceWalk::SpotId PlaceWalk::IdOf(const PlaceSet& set) {
  if (set.is_dead()) return kDead;
  const uint32_t hash = HashOf(set);
  const auto known = ids_.Find(hash, [&](uint32_t id) {
    return spots_[id].ended == set.ended &&
           std::ranges::equal(places_of(static_cast<SpotId>(id)), set.places);
  });
  if (known.has_value()) return static_cast<SpotId>(*known);
  const auto id = static_cast<SpotId>(spots_.size());
  ids_.Insert(hash, id);
  spots_.push_back({.begin = static_cast<uint32_t>(places_.size()),
                    .size = static_cast<uint32_t>(set.places.size()),
                    .ended = set.ended});
  rows_.push_back({});
  places_.insert(places_.end(), set.places.begin(), set.places.end());
  return id;
}

PlaceWalk::SpotId PlaceWalk::FindNext(SpotId from, uint8_t byte) {
  mover_.Step(grammar_, &frames_, places_of(from), byte, &set_);
  work_ += kWorkOfStep + kWorkOfPlace * (spots_[from].size + set_.places.size());
  const SpotId next = IdOf(set_);
  rows_[from][byte] = next;
  return next;
}

void PlaceWalk::Clear() {
  spots_.assign(2, {});  // kUnknown, kDead
  rows_.assign(2, {});
  places_.clear();
  ids_.Clear();
}

void PlaceWalk::ForgetBut(std::span<SpotId> kept) {
  std::vector<PlaceSet> sets;
  std::vector<Place> all;
  for (const SpotId spot : kept) {
    const std::span<const Place> places = places_of(spot);
    sets.push_back({.places = {places.begin(), places.end()}, .ended = spots_[spot].ended});
    all.insert(all.end(), places.begin(), places.end());
  }
  frames_.KeepOnly(all);
  Clear();
  size_t used = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    for (Place& place : sets[i].places) place = all[used++];
    kept[i] = IdOf(sets[i]);
  }
  start_ = kept.front();
}

}  // namespace refrain::engine
