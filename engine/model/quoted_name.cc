#include "engine/model/quoted_name.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {

std::string QuotedName(std::string_view name) {
  constexpr size_t kMaxBytes = 96;
  const std::string_view shown = name.substr(0, kMaxBytes);
  return absl::StrCat("\"", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
                      name.size() > kMaxBytes ? "...\"" : "\"");
}

}  // namespace refrain::engine
