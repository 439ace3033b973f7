#ifndef REFRAIN_ENGINE_GRAMMAR_PLACE_WALK_H_
#define REFRAIN_ENGINE_GRAMMAR_PLACE_WALK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/id_table.h"
#include "engine/grammar/places.h"
#include "engine/grammar/token_set.h"
#include "engine/grammar/token_trie.h"

namespace refrain::engine {

// Walks a trie of tokens from where an output stands, and finds those that a grammar allows there.
//
// Sets of places are told apart and numbered as they come (spots), and each remembers where the
// bytes seen so far led, so that a walk over a vocabulary is one look-up a node: of the 100,000
// nodes below a JSON string, a dozen spots see nearly all. Where there are more than kMostSpots of
// them the walk forgets those that it does not stand on.
//
// Places beyond PlaceSet::kMost are not followed: tokens that lead there are not found. Beyond
// kMostWork it stops, and what it found is not all. One thread.
class PlaceWalk {
 public:
  // A node that is passed is one, about 4 ns; all walks of one object count. A JSON string's inside
  // takes half a million in a vocabulary of 128,000.
  static constexpr uint64_t kMostWork = 16'000'000;
  static constexpr size_t kMostSpots = 4096;  // of 512 bytes and more

  // All outlive it; `base`, which holds the frames of the places to start from, does not change
  // meanwhile. Null: there are none but kNobody.
  PlaceWalk(const Grammar* grammar, const TokenTrie* trie, const FrameArena* base);

  // Where the next walks start.
  void StartFromState(StateId state);                 // by its own bytes, nobody waits
  void StartFromCalled(StateId state, StateId back);  // the same, but for a call that goes on there
  void StartFrom(std::span<const Place> places);      // and from what they reach without a byte
  bool has_places() const { return spots_[start_].size > 0; }

  // Adds what is allowed below a node of the trie, at which the output stands where the walk
  // starts: tokens behind whose bytes there is a place, or nobody waits any more. The nodes of the
  // latter that have children go to `ends`, if it is not null, in ascending order.
  void AddAllowed(uint32_t node, TokenSet* allowed, std::vector<uint32_t>* ends);
  uint64_t work() const { return work_; }

 private:
  using SpotId = uint16_t;
  static constexpr SpotId kUnknown = 0;
  static constexpr SpotId kDead = 1;
  struct Spot {
    uint32_t begin = 0, size = 0;  // of places_
    bool ended = false;
  };
  using Row = std::array<SpotId, 256>;  // where each byte leads

  std::span<const Place> places_of(SpotId spot) const {
    return std::span(places_).subspan(spots_[spot].begin, spots_[spot].size);
  }
  SpotId IdOf(const PlaceSet& set);
  SpotId FindNext(SpotId from, uint8_t byte);
  void Clear();
  // Of all spots only these, whose ids it changes; the first is the start.
  void ForgetBut(std::span<SpotId> kept);

  const Grammar& grammar_;
  const TokenTrie& trie_;
  FrameArena frames_;
  PlaceMover mover_;
  PlaceSet set_;  // for a moment
  std::vector<Spot> spots_;
  std::vector<Row> rows_;  // [num_spots]
  std::vector<Place> places_;
  IdTable ids_;  // of spots_, by their places
  SpotId start_ = kDead;
  uint64_t work_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_PLACE_WALK_H_
