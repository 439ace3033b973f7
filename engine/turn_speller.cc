#include "engine/turn_speller.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace refrain::engine {

TurnSpeller::TurnSpeller(const Tokenizer* tokenizer, std::string_view text)
    : tokenizer_(tokenizer),
      text_(text),
      states_(1, State{.detokenizer = Detokenizer(tokenizer)}) {}

TurnSpeller::Extent TurnSpeller::Spell(std::span<const kvcache::TokenId> ids) {
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
  return state.spelled;
}

bool TurnSpeller::Append(kvcache::TokenId id, State* state) const {
  // A model may have more rows than its tokenizer has tokens: they spell nothing.
  if (kvcache::ToIndex(id) >= tokenizer_->vocab_size()) return false;
  if (tokenizer_->IsReserved(id)) return false;
  const std::string piece = state->detokenizer.Append(id);
  if (!text_.substr(state->bytes).starts_with(piece)) return false;
  ++state->tokens;
  state->bytes += piece.size();
  std::string cut;  // what the token's part of a character is if the answer ended there
  if (state->detokenizer.holds_bytes()) cut = Detokenizer(state->detokenizer).Flush();
  if (text_.substr(state->bytes).starts_with(cut)) {
    state->spelled = {state->tokens, state->bytes + cut.size()};
  }
  return true;
}

}  // namespace refrain::engine
