#include "engine/grammar/character_ranges.h"

#include <algorithm>

namespace refrain::engine {

CharacterRanges Normalised(CharacterRanges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  CharacterRanges normalised;
  for (const CharacterRange& range : ranges) {
    if (!normalised.empty() && range.first <= normalised.back().last + 1) {
      normalised.back().last = std::max(normalised.back().last, range.last);
    } else {
      normalised.push_back(range);
    }
  }
  return normalised;
}

CharacterRanges Complement(const CharacterRanges& ranges) {
  CharacterRanges others;
  char32_t begin = 0;
  for (const CharacterRange& range : ranges) {
    if (begin < range.first) others.push_back({begin, range.first - 1});
    begin = range.last + 1;
  }
  if (begin <= kLastCharacter) others.push_back({begin, kLastCharacter});
  return others;
}

}  // namespace refrain::engine
