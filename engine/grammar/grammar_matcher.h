#ifndef REFRAIN_ENGINE_GRAMMAR_GRAMMAR_MATCHER_H_
#define REFRAIN_ENGINE_GRAMMAR_GRAMMAR_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/grammar/grammar.h"
#include "engine/grammar/mask_store.h"
#include "engine/grammar/place_walk.h"
#include "engine/grammar/places.h"
#include "engine/grammar/token_set.h"

namespace refrain::engine {

// Follows one output through a grammar, and says which tokens may come next. The output so far may
// stand in several places at once, each a state and the calls that wait for it; calls that wait for
// the same are kept once, and tail calls are no calls, so that what it holds grows with the depth
// of nesting and not with the length of the output.
//
// A value: a copy goes its own way (the choices of a request). One thread at a time. Cannot fail
// but where said.
class GrammarMatcher {
 public:
  // More places at once than so many, or more work to find what is allowed there, and nothing is
  // accepted any more: an ambiguous grammar would take time that others wait for. The work is that
  // of walks over the trie, also over those whose outcome is in the store: it says the same each
  // time.
  static constexpr size_t kMostPlaces = PlaceSet::kMost;
  static constexpr uint64_t kMostWork = PlaceWalk::kMostWork;

  GrammarMatcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<MaskStore> masks);

  // Goes on by these bytes, or, false, stays where it is. Overrun where they take it beyond
  // kMostPlaces.
  bool Accept(std::string_view bytes);
  bool AcceptToken(kvcache::TokenId token);  // false for one that the trie does not have
  // The tokens of which AcceptToken would be true; it is overrun by some of them where the places
  // are near kMostPlaces. Overwrites. `allowed` is of the trie's vocabulary. Overrun, and none are
  // allowed, where it takes more than kMostWork.
  void FindAllowed(TokenSet* allowed);
  // Whether the output may end here.
  bool CanEnd() const { return at_.ended; }
  // Whether nothing else is left to it.
  bool MustEnd() const { return at_.ended && at_.places.empty(); }
  // Went beyond kMostPlaces or kMostWork, perhaps at once: nothing is accepted, and the output can
  // neither go on nor end.
  bool is_overrun() const { return at_.overrun; }

  size_t num_places() const { return at_.places.size(); }
  size_t num_frames() const { return frames_.size() - 1; }  // calls that wait, of all places

 private:
  // Below so many frames none is looked for that could go.
  static constexpr uint32_t kFewFrames = 128;

  // False beyond kMostWork.
  bool AddAllowed(TokenSet* allowed) const;
  // What `callers` take behind the mask's ends.
  static void AddBehind(const StateMask& mask, const std::vector<Place>& callers, PlaceWalk* walk,
                        TokenSet* allowed);
  void ForgetFrames();

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<MaskStore> masks_;
  PlaceSet at_;
  FrameArena frames_;
  uint32_t forget_at_ = kFewFrames;  // frames
  PlaceMover mover_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_GRAMMAR_MATCHER_H_
