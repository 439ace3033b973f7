#include "engine/grammar/places.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace refrain::engine {
namespace {

constexpr size_t kSearchedInTurn = 24;  // so few are found sooner than a hash is computed
constexpr FrameId kForgotten{UINT32_MAX};

uint64_t Pair(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

uint64_t KeyOf(const Place& place) {
  return Pair(static_cast<uint32_t>(place.state), static_cast<uint32_t>(place.frame));
}

// By a secret of the process: outputs choose the frames.
uint32_t HashOf(const FrameArena::Frame& frame) {
  return static_cast<uint32_t>(absl::HashOf(frame.back, frame.below));
}

const Grammar::ByteEdge* FindEdge(std::span<const Grammar::ByteEdge> edges, uint8_t byte) {
  const auto found = std::partition_point(
      edges.begin(), edges.end(), [byte](const Grammar::ByteEdge& e) { return e.last < byte; });
  return found != edges.end() && found->first <= byte ? &*found : nullptr;
}

// Whoever returns there returns at once.
bool OnlyEnds(const Grammar& grammar, StateId state) {
  return grammar.accepts(state) && grammar.bytes(state).empty() && grammar.calls(state).empty();
}

}  // namespace

std::optional<uint32_t> FrameArena::Find(uint32_t hash, const Frame& frame) const {
  return ids_.Find(hash, [&](uint32_t id) { return at(FrameId{id}) == frame; });
}

FrameId FrameArena::Push(StateId back, FrameId below) {
  const Frame frame{back, below};
  const uint32_t hash = HashOf(frame);
  if (base_ != nullptr && static_cast<uint32_t>(below) < base_size_) {
    if (const auto known = base_->Find(hash, frame); known.has_value()) return FrameId{*known};
  }
  if (const auto known = Find(hash, frame); known.has_value()) return FrameId{*known};
  ids_.Insert(hash, size());
  frames_.push_back(frame);
  return FrameId{size() - 1};
}

void FrameArena::KeepOnly(std::span<Place> places) {
  std::vector<FrameId> ids(frames_.size(), kForgotten);
  const auto index_of = [&](FrameId id) -> size_t {
    return static_cast<uint32_t>(id) - base_size_;
  };
  const auto is_own = [&](FrameId id) { return static_cast<uint32_t>(id) >= base_size_; };
  for (const Place& place : places) {
    for (FrameId id = place.frame; is_own(id) && ids[index_of(id)] == kForgotten;
         id = frames_[index_of(id)].below) {
      ids[index_of(id)] = id;
    }
  }
  ids_.Clear();
  size_t kept = 0;
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (ids[i] == kForgotten) continue;
    Frame frame = frames_[i];
    if (is_own(frame.below)) frame.below = ids[index_of(frame.below)];  // made before this one
    ids[i] = FrameId{base_size_ + static_cast<uint32_t>(kept)};
    frames_[kept++] = frame;
    ids_.Insert(HashOf(frame), static_cast<uint32_t>(ids[i]));
  }
  frames_.resize(kept);
  for (Place& place : places) {
    if (is_own(place.frame)) place.frame = ids[index_of(place.frame)];
  }
}

void PlaceMover::Add(const Place& place, std::vector<Place>* places) {
  if (places->size() < kSearchedInTurn) {
    if (std::find(places->begin(), places->end(), place) != places->end()) return;
  } else {
    if (seen_.empty()) {
      for (const Place& p : *places) seen_.insert(KeyOf(p));
    }
    if (!seen_.insert(KeyOf(place)).second) return;
  }
  places->push_back(place);
}

void PlaceMover::Close(const Grammar& grammar, FrameArena* frames, PlaceSet* set) {
  std::vector<Place>& places = set->places;
  for (size_t i = 0; i < places.size() && places.size() <= PlaceSet::kMost; ++i) {
    const Place place = places[i];
    if (grammar.accepts(place.state)) {
      if (place.frame == kNobody) {
        set->ended = true;
      } else {
        const FrameArena::Frame frame = frames->at(place.frame);
        Add({frame.back, frame.below}, &places);
      }
    }
    for (const Grammar::CallEdge& call : grammar.calls(place.state)) {
      const FrameId frame =
          OnlyEnds(grammar, call.to) ? place.frame : frames->Push(call.to, place.frame);
      Add({grammar.start(call.rule), frame}, &places);
      if (places.size() > PlaceSet::kMost) break;
    }
  }
  if (!seen_.empty()) seen_.clear();
  if (places.size() > PlaceSet::kMost) {
    *set = {.places = {}, .ended = false, .overrun = true};
    return;
  }
  std::erase_if(places, [&](const Place& p) { return grammar.bytes(p.state).empty(); });
  if (places.size() > 1) std::sort(places.begin(), places.end());
}

void PlaceMover::Step(const Grammar& grammar, FrameArena* frames, std::span<const Place> from,
                      uint8_t byte, PlaceSet* to) {
  to->places.clear();
  to->ended = to->overrun = false;
  for (const Place& place : from) {
    const Grammar::ByteEdge* const edge = FindEdge(grammar.bytes(place.state), byte);
    if (edge != nullptr) Add({edge->to, place.frame}, &to->places);
  }
  Close(grammar, frames, to);
}

}  // namespace refrain::engine
