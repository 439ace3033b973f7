#include "engine/text/tokenizer_class.h"

#include <algorithm>
#include <array>

namespace refrain::engine {
namespace {

std::string_view WithoutFast(std::string_view tokenizer_class) {
  constexpr std::string_view kFast = "Fast";
  if (tokenizer_class.ends_with(kFast)) tokenizer_class.remove_suffix(kFast.size());
  return tokenizer_class;
}

}  // namespace

bool ObeysAddBosToken(std::string_view tokenizer_class) {
  static constexpr std::array<std::string_view, 5> kNames = {"LlamaTokenizer", "CodeLlamaTokenizer",
                                                             "GemmaTokenizer", "CohereTokenizer",
                                                             "GPTNeoXTokenizer"};
  return std::find(kNames.begin(), kNames.end(), WithoutFast(tokenizer_class)) != kNames.end();
}

bool HasTokenOfItsOwn(std::string_view tokenizer_class, std::string_view role) {
  const std::string_view name = WithoutFast(tokenizer_class);
  if (name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend") return false;
  return name != "Qwen2Tokenizer" || role != "bos_token";
}

}  // namespace refrain::engine
