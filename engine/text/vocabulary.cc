#include "engine/text/vocabulary.h"

#include <algorithm>
#include <array>

namespace refrain::engine {

bool NamesEndOfGeneration(std::string_view spelling) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "<|im_end|>",      "<|eot_id|>",    "<|eom_id|>", "</s>",   "<|endoftext|>",
      "<|end_of_text|>", "<end_of_turn>", "<|end|>",    "<|eot|>"};
  return std::find(kNames.begin(), kNames.end(), spelling) != kNames.end();
}

}  // namespace refrain::engine
