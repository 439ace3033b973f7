#include "engine/grammar/regex_characters.h"

#include <iterator>

namespace refrain::engine {
namespace {

// WhiteSpace and LineTerminator of ECMA-262.
constexpr CharacterRange kSpace[] = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

}  // namespace

std::optional<CharacterRanges> FindClass(char letter) {
  switch (letter) {
    case 'd':
      return CharacterRanges{{'0', '9'}};
    case 'w':
      return CharacterRanges{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's':
      return CharacterRanges(std::begin(kSpace), std::end(kSpace));
    case 'D':
    case 'W':
    case 'S':
      return Complement(*FindClass(static_cast<char>(letter - 'A' + 'a')));
    default:
      return std::nullopt;
  }
}

CharacterRanges AllButLineEnds() {
  return Complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

}  // namespace refrain::engine
