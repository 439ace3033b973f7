#include "engine/grammar/regex_characters.h"

#include <algorithm>

namespace refrain::engine {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

// WhiteSpace and LineTerminator of ECMA-262.
constexpr RegexNode::Range kSpace[] = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

}  // namespace

RegexRanges Normalised(RegexRanges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  RegexRanges normalised;
  for (const RegexNode::Range& range : ranges) {
    if (!normalised.empty() && range.first <= normalised.back().last + 1) {
      normalised.back().last = std::max(normalised.back().last, range.last);
    } else {
      normalised.push_back(range);
    }
  }
  return normalised;
}

RegexRanges Complement(const RegexRanges& ranges) {
  RegexRanges others;
  char32_t begin = 0;
  for (const RegexNode::Range& range : ranges) {
    if (begin < range.first) others.push_back({begin, range.first - 1});
    begin = range.last + 1;
  }
  if (begin <= kLastCharacter) others.push_back({begin, kLastCharacter});
  return others;
}

std::optional<RegexRanges> FindClass(char letter) {
  switch (letter) {
    case 'd':
      return RegexRanges{{'0', '9'}};
    case 'w':
      return RegexRanges{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's':
      return RegexRanges(std::begin(kSpace), std::end(kSpace));
    case 'D':
    case 'W':
    case 'S':
      return Complement(*FindClass(static_cast<char>(letter - 'A' + 'a')));
    default:
      return std::nullopt;
  }
}

RegexRanges AllButLineEnds() { return Complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

}  // namespace refrain::engine
