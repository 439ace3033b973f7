#ifndef REFRAIN_ENGINE_TURN_SPELLER_H_
#define REFRAIN_ENGINE_TURN_SPELLER_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::engine {

// How far the ids of turns spell one text.
//
// A prompt may have hundreds of long turns that begin alike (one greedy answer, cut at different
// lengths). The turn that went furthest is kept, with the detokenizer's state at every kStride-th
// token; each next one is detokenized from the last state before the first id that differs. Turns
// that spell the same text in other tokens are detokenized each.
//
// Does not choose among turns. Used by TurnSplicer, for one place of one prompt, by one thread.
// Cannot fail.
class TurnSpeller {
 public:
  struct Extent {
    size_t tokens = 0, bytes = 0;
    friend bool operator==(const Extent&, const Extent&) = default;
  };
  static constexpr size_t kStride = 16;  // tokens

  // The tokenizer and the text outlive the speller.
  TurnSpeller(const Tokenizer* tokenizer, std::string_view text);

  // The most tokens at the beginning of `ids` that spell the beginning of the text, in whole
  // characters. An answer that ends within a character, or that goes on otherwise than the text
  // there (a stop string cut it), spells U+FFFD. Nothing spells further than to a reserved token,
  // or to an id that the tokenizer lacks. `ids` outlive the speller.
  Extent Spell(std::span<const kvcache::TokenId> ids);

  // As much of that as is to be taken. All of it where the text ends there, or the answer does, or
  // the text's last token was cut. Else the text is another one, which only begins alike: what ends
  // before a space, so that no word of it is divided for what was answered before.
  Extent SpellWholeWords(std::span<const kvcache::TokenId> ids);

 private:
  // Behind some tokens, of which all that was released stands in the text.
  struct State {
    Detokenizer detokenizer;
    size_t tokens = 0;
    size_t bytes = 0;  // released
    Extent spelled;    // as far as those may be all that is taken
    Extent whole;      // as far as a word of the text begins
  };

  // Behind all that are taken of `ids`; its detokenizer is spoiled.
  State Follow(std::span<const kvcache::TokenId> ids);

  bool SpellsText(kvcache::TokenId id) const;
  // False: the text goes on otherwise, or the token spells nothing. Spoils the state's detokenizer.
  bool Append(kvcache::TokenId id, State* state) const;

  const Tokenizer* tokenizer_;
  std::string_view text_;
  std::span<const kvcache::TokenId> furthest_;  // those of its ids that were taken
  std::vector<State> states_;                   // [i]: behind i * kStride of them
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TURN_SPELLER_H_
