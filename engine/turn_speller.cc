#include "engine/turn_speller.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

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
  Step step = Step::kTaken;
  std::optional<Detokenizer> holding;  // as it was before the last token, if it held bytes
  while (state.tokens < ids.size()) {
    holding.reset();
    if (state.detokenizer.holds_bytes()) holding = state.detokenizer;
    step = Append(ids[state.tokens], &state);
    if (step != Step::kTaken) break;
    if (state.tokens % kStride == 0) further.push_back(state);
  }
  if (state.tokens > furthest_.size()) {
    furthest_ = ids.first(state.tokens);
    states_.erase(states_.begin() + static_cast<std::ptrdiff_t>(alike) + 1, states_.end());
    std::ranges::move(further, std::back_inserter(states_));
  }
  if (step == Step::kDiffers) {
    if (!holding.has_value()) return state.spelled;
    state.detokenizer = *std::move(holding);
  }
  // The answer may have ended inside of a character, or what is left of it.
  const std::string rest = state.detokenizer.Flush();
  if (rest.empty() || !text_.substr(state.bytes).starts_with(rest)) return state.spelled;
  return {state.tokens, state.bytes + rest.size()};
}

TurnSpeller::Step TurnSpeller::Append(kvcache::TokenId id, State* state) const {
  // A model may have more rows than its tokenizer has tokens: they spell nothing.
  if (kvcache::ToIndex(id) >= tokenizer_->vocab_size()) return Step::kUnspellable;
  if (tokenizer_->IsReserved(id)) return Step::kUnspellable;
  const std::string piece = state->detokenizer.Append(id);
  if (!text_.substr(state->bytes).starts_with(piece)) return Step::kDiffers;
  ++state->tokens;
  state->bytes += piece.size();
  if (!state->detokenizer.holds_bytes()) state->spelled = {state->tokens, state->bytes};
  return Step::kTaken;
}

}  // namespace refrain::engine
