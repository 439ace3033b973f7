#include "engine/turn_speller.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace refrain::engine {
namespace {

// A space behind something else begins a new piece of text in all pre-tokenizers, and a new token
// of SentencePiece's. Line ends do not behind all punctuation.
bool BeginsWord(std::string_view text, size_t at_byte) {
  constexpr std::string_view kSpace = " \t\r\n";
  return at_byte > 0 && at_byte < text.size() && text[at_byte] == ' ' &&
         kSpace.find(text[at_byte - 1]) == std::string_view::npos;
}

}  // namespace

TurnSpeller::TurnSpeller(const Tokenizer* tokenizer, std::string_view text)
    : tokenizer_(tokenizer),
      text_(text),
      states_(1, State{.detokenizer = Detokenizer(tokenizer)}) {}

TurnSpeller::Extent TurnSpeller::Spell(std::span<const kvcache::TokenId> ids) {
  return Follow(ids).spelled;
}

TurnSpeller::Extent TurnSpeller::SpellWholeWords(std::span<const kvcache::TokenId> ids) {
  const State state = Follow(ids);
  const auto [tokens, bytes] = state.spelled;
  if (tokens == ids.size() || !SpellsText(ids[tokens])) return state.spelled;
  // As a stop string cuts an answer; nothing is left where that is between tokens.
  if (tokenizer_->TokenBytes(ids[tokens]).starts_with(text_.substr(bytes))) return state.spelled;
  return state.whole;
}

TurnSpeller::State TurnSpeller::Follow(std::span<const kvcache::TokenId> ids) {
  const auto differs = std::ranges::mismatch(ids, furthest_).in1;
  const size_t alike = static_cast<size_t>(differs - ids.begin()) / kStride;
  State state = states_[alike];
  std::vector<State> further;
  while (state.tokens < ids.size() && Append(ids[state.tokens], &state)) {
    if (state.tokens % kStride == 0) further.push_back(state);
  }
  if (state.tokens > furthest_.size()) {
    furthest_ = ids.first(state.tokens);
    states_.erase(states_.begin() + static_cast<std::ptrdiff_t>(alike) + 1, states_.end());
    std::ranges::move(further, std::back_inserter(states_));
  }
  return state;
}

// A model may have more rows than its tokenizer has tokens: they spell nothing.
bool TurnSpeller::SpellsText(kvcache::TokenId id) const {
  return kvcache::ToIndex(id) < tokenizer_->vocab_size() && !tokenizer_->IsReserved(id);
}

bool TurnSpeller::Append(kvcache::TokenId id, State* state) const {
  if (!SpellsText(id)) return false;
  const std::string piece = state->detokenizer.Append(id);
  if (!text_.substr(state->bytes).starts_with(piece)) return false;
  ++state->tokens;
  state->bytes += piece.size();
  if (!state->detokenizer.holds_bytes() && BeginsWord(text_, state->bytes)) {
    state->whole = {state->tokens, state->bytes};
  }
  std::string cut;  // what the token's part of a character is if the answer ended there
  if (state->detokenizer.holds_bytes()) cut = Detokenizer(state->detokenizer).Flush();
  if (text_.substr(state->bytes).starts_with(cut)) {
    state->spelled = {state->tokens, state->bytes + cut.size()};
  }
  return true;
}

}  // namespace refrain::engine
