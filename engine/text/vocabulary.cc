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

}  // namespace refrain::engine
