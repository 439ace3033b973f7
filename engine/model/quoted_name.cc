#include "engine/model/quoted_name.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {

namespace {

std::string Quoted(std::string_view text, size_t max_bytes) {
  const std::string_view shown = text.substr(0, max_bytes);
  return absl::StrCat("\"", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
                      text.size() > max_bytes ? "...\"" : "\"");
}

}  // namespace

std::string QuotedName(std::string_view name) { return Quoted(name, 96); }

std::string QuotedPath(std::string_view path) { return Quoted(path, 4096); }

absl::Status WithPath(const absl::Status& status, std::string_view path) {
  return absl::Status(status.code(), absl::StrCat(QuotedPath(path), ": ", status.message()));
}

}  // namespace refrain::engine
