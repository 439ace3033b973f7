#include "engine/grammar/look_ahead.h"

#include <algorithm>
#include <cstddef>

namespace refrain::engine {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

// Behind an escape, a class or a character.
size_t SkipPiece(std::string_view pattern, size_t at) {
  if (pattern[at] == '\\') return std::min(at + 2, pattern.size());
  if (pattern[at] != '[') return at + 1;
  size_t end = at + 1;
  while (end < pattern.size() && pattern[end] != ']') end += pattern[end] == '\\' ? 2 : 1;
  return std::min(end + 1, pattern.size());
}

// The `wanted` character, outside of classes and of groups that begin behind `begin`.
size_t FindOutside(std::string_view pattern, size_t begin, char wanted) {
  int depth = 0;
  for (size_t at = begin; at < pattern.size(); at = SkipPiece(pattern, at)) {
    if (depth == 0 && pattern[at] == wanted) return at;
    if (pattern[at] == '(') ++depth;
    if (pattern[at] == ')') --depth;
  }
  return kNowhere;
}

}  // namespace

PatternParts SplitLookAheads(std::string_view pattern) {
  PatternParts parts;
  std::string_view rest = pattern;
  // Of alternatives the first alone would begin with them.
  if (rest.starts_with('^') && FindOutside(pattern, 0, '|') == kNowhere) {
    rest.remove_prefix(1);
    while (rest.starts_with("(?=") || rest.starts_with("(?!")) {
      constexpr size_t kOpenBytes = 3;
      const size_t close = FindOutside(rest, kOpenBytes, ')');
      if (close == kNowhere) break;
      std::string_view inside = rest.substr(kOpenBytes, close - kOpenBytes);
      const bool is_anchored = inside.starts_with('^') && FindOutside(inside, 0, '|') == kNowhere;
      if (is_anchored) inside.remove_prefix(1);  // as it is anyway
      auto& list = rest[2] == '=' ? parts.all_of : parts.none_of;
      list.push_back("^(?:" + std::string(inside) + ")");
      rest.remove_prefix(close + 1);
    }
  }
  const bool has_any = !parts.all_of.empty() || !parts.none_of.empty();
  parts.all_of.push_back(has_any ? "^" + std::string(rest) : std::string(pattern));
  return parts;
}

}  // namespace refrain::engine
