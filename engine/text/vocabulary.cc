#include "engine/text/vocabulary.h"

#include <algorithm>
#include <array>

#include "engine/text/utf8.h"

namespace refrain::engine {

bool NamesEndOfGeneration(std::string_view spelling) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "<|im_end|>",      "<|eot_id|>",    "<|eom_id|>", "</s>",   "<|endoftext|>",
      "<|end_of_text|>", "<end_of_turn>", "<|end|>",    "<|eot|>"};
  return std::find(kNames.begin(), kNames.end(), spelling) != kNames.end();
}

bool LooksLikeControl(std::string_view spelling) {
  for (const std::string_view bar : {"|", "\uff5c"}) {
    const size_t frame_bytes = 2 * (1 + bar.size());
    if (spelling.size() > frame_bytes && spelling.starts_with('<') && spelling.ends_with('>') &&
        spelling.substr(1).starts_with(bar) &&
        spelling.substr(0, spelling.size() - 1).ends_with(bar)) {
      return true;
    }
  }
  return false;
}

std::set<kvcache::TokenId> EndTokens(const TokenizerSpec& spec) {
  std::set<kvcache::TokenId> ends(spec.end_of_generation.begin(), spec.end_of_generation.end());
  for (const std::optional<kvcache::TokenId>& id : {spec.eos, spec.eot, spec.eom}) {
    if (id.has_value()) ends.insert(*id);
  }
  return ends;
}

void MarkEndTokens(TokenizerSpec* spec) {
  const size_t size = std::min(spec->tokens.size(), spec->token_types.size());
  for (const kvcache::TokenId id : EndTokens(*spec)) {
    if (static_cast<int32_t>(id) < 0 || kvcache::ToIndex(id) >= size) continue;
    TokenType& type = spec->token_types[kvcache::ToIndex(id)];
    if (type == TokenType::kUserDefined && !IsSingleCharacter(spec->tokens[kvcache::ToIndex(id)])) {
      type = TokenType::kControl;
    }
  }
}

bool IsSingleCharacter(std::string_view spelling) {
  return spelling.empty() || FirstUtf8Unit(spelling).size_bytes == spelling.size();
}

}  // namespace refrain::engine
