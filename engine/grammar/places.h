#ifndef REFRAIN_ENGINE_GRAMMAR_PLACES_H_
#define REFRAIN_ENGINE_GRAMMAR_PLACES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/id_table.h"
#include "engine/hash_map.h"

namespace refrain::engine {

// A call that waits for the rule above it, and below it the call that its own rule answers to.
enum class FrameId : uint32_t {};
inline constexpr FrameId kNobody{0};  // no call waits: the end of the rule is the end of all

// Where an output may stand: a state, and who waits for its rule to end.
struct Place {
  StateId state{};
  FrameId frame = kNobody;
  friend auto operator<=>(const Place&, const Place&) = default;
};

// The waiting calls of all places of one output, a tree with kNobody as its root. Equal ones are
// one, so that places can be compared by their ids, and so that an output that nests and unnests
// does not make new ones each time.
//
// A value. One thread. Cannot fail.
class FrameArena {
 public:
  struct Frame {
    StateId back{};  // where the caller goes on
    FrameId below = kNobody;
    friend bool operator==(const Frame&, const Frame&) = default;
  };

  FrameArena() = default;
  // Those of `base`, which outlives it and does not change meanwhile, and others besides.
  explicit FrameArena(const FrameArena* base) : base_(base), base_size_(base->size()) {}

  const Frame& at(FrameId frame) const {  // not of kNobody
    const auto i = static_cast<uint32_t>(frame);
    return i < base_size_ ? base_->at(frame) : frames_[i - base_size_];
  }
  FrameId Push(StateId back, FrameId below);
  // Forgets the frames that no place needs, but for those of the base, and gives the others new
  // ids, in the same order.
  void KeepOnly(std::span<Place> places);

  uint32_t size() const { return base_size_ + static_cast<uint32_t>(frames_.size()); }

 private:
  std::optional<uint32_t> Find(uint32_t hash, const Frame& frame) const;

  const FrameArena* base_ = nullptr;
  uint32_t base_size_ = 1;  // kNobody has no Frame
  std::vector<Frame> frames_;
  IdTable ids_;  // of frames_
};

// All places of an output.
struct PlaceSet {
  // More at once, and there is none: an ambiguous grammar would take time that others wait for.
  static constexpr size_t kMost = 512;

  std::vector<Place> places;  // ascending, each of a state that takes bytes
  bool ended = false;         // whether the output may end here
  bool overrun = false;       // there were more than kMost, and all are gone

  bool is_dead() const { return places.empty() && !ended; }
};

// Moves places on. Keeps its memory from one time to the next; a copy shares nothing. One thread.
class PlaceMover {
 public:
  // Of places as they come, what they can reach without a byte: callers behind the ends of their
  // rules, and rules that they call.
  void Close(const Grammar& grammar, FrameArena* frames, PlaceSet* set);
  // Where `from` stand behind one byte.
  void Step(const Grammar& grammar, FrameArena* frames, std::span<const Place> from, uint8_t byte,
            PlaceSet* to);

 private:
  void Add(const Place& place, std::vector<Place>* places);

  HashSet<uint64_t> seen_;  // the places, where they are many
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_PLACES_H_
