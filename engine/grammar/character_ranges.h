#ifndef REFRAIN_ENGINE_GRAMMAR_CHARACTER_RANGES_H_
#define REFRAIN_ENGINE_GRAMMAR_CHARACTER_RANGES_H_

#include <vector>

namespace refrain::engine {

inline constexpr char32_t kLastCharacter = 0x10FFFF;

// Characters, by their code points.
struct CharacterRange {
  char32_t first, last;
};
using CharacterRanges = std::vector<CharacterRange>;

// Ascending, with what overlaps or touches put together.
CharacterRanges Normalised(CharacterRanges ranges);
// All other code points. Of normalised ranges.
CharacterRanges Complement(const CharacterRanges& ranges);

inline bool IsHighSurrogate(char32_t c) { return c >= 0xD800 && c <= 0xDBFF; }
inline bool IsLowSurrogate(char32_t c) { return c >= 0xDC00 && c <= 0xDFFF; }
// The character of a pair of them.
inline char32_t CharacterOfSurrogates(char32_t high, char32_t low) {
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_CHARACTER_RANGES_H_
