#ifndef REFRAIN_ENGINE_TEXT_SPACE_MARK_H_
#define REFRAIN_ENGINE_TEXT_SPACE_MARK_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace refrain::engine {

// U+2581, by which SentencePiece spells a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

inline std::string SpacesForMarks(std::string_view spelling) {
  std::string out;
  out.reserve(spelling.size());
  for (size_t at = 0; at < spelling.size();) {
    const size_t mark = spelling.find(kSpaceMark, at);
    out += spelling.substr(at, mark - at);
    if (mark == std::string_view::npos) break;
    out.push_back(' ');
    at = mark + kSpaceMark.size();
  }
  return out;
}

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SPACE_MARK_H_
