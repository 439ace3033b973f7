#include "engine/model/gguf_part_name.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_format.h"

namespace refrain::engine {
namespace {

constexpr std::string_view kSuffix = "-00000-of-00000.gguf";  // each 0 any digit

uint32_t Number(std::string_view digits) {
  uint32_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

std::optional<GgufPartName> ParseGgufPartName(std::string_view path) {
  if (path.size() <= kSuffix.size()) return std::nullopt;
  const std::string_view suffix = path.substr(path.size() - kSuffix.size());
  const bool fits = std::ranges::equal(suffix, kSuffix, [](char given, char wanted) {
    return wanted == '0' ? given >= '0' && given <= '9' : given == wanted;
  });
  const uint32_t number = Number(suffix.substr(1, 5));
  if (!fits || number == 0) return std::nullopt;
  return GgufPartName{std::string(path.substr(0, path.size() - kSuffix.size())), number - 1,
                      Number(suffix.substr(10, 5))};
}

std::string ToString(const GgufPartName& name) {
  return absl::StrFormat("%s-%05d-of-%05d.gguf", name.stem, name.number + 1, name.count);
}

}  // namespace refrain::engine
