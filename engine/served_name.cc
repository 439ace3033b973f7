#include "engine/served_name.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/model/gguf_part_name.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr size_t kMaxShownBytes = 96;

bool IsControl(uint32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
}

bool IsFit(const Utf8Unit& unit) {
  return unit.kind == Utf8Unit::Kind::kCharacter && !IsControl(unit.code_point);
}

// Hugging Face's cache has models--OWNER--NAME/snapshots/REVISION. Empty elsewhere.
std::string NameInHubCache(const std::filesystem::path& folder) {
  const std::filesystem::path snapshots = folder.parent_path();
  const std::string repository = snapshots.parent_path().filename().string();
  if (snapshots.filename() != "snapshots" || !repository.starts_with("models--")) return {};
  return repository.substr(repository.rfind("--") + 2);
}

std::string NameOf(const std::filesystem::path& given) {
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(given, ignored);
  // Without the dots: of `.` it is the name of the folder that one is in.
  const std::filesystem::path normal = (absolute.empty() ? given : absolute).lexically_normal();
  const std::filesystem::path path = normal.has_filename() ? normal : normal.parent_path();
  if (!std::filesystem::is_directory(given, ignored)) {
    const std::optional<GgufPartName> part = ParseGgufPartName(path.filename().string());
    return part.has_value() ? part->stem : path.stem().string();
  }
  const std::string name = NameInHubCache(path);
  return name.empty() ? path.filename().string() : name;
}

}  // namespace

absl::Status CheckServedName(std::string_view name) {
  for (size_t at = 0; at < name.size();) {
    const Utf8Unit unit = FirstUtf8Unit(name.substr(at));
    if (!IsFit(unit)) {
      const bool ill_formed = unit.kind != Utf8Unit::Kind::kCharacter;
      const std::string shown(name.substr(0, kMaxShownBytes));
      return absl::InvalidArgumentError(
          absl::StrCat("\"", absl::CHexEscape(shown), name.size() > shown.size() ? "..." : "",
                       "\" has ", ill_formed ? "what is not UTF-8" : "a control character",
                       " at byte ", at, "; expected UTF-8 text without control characters"));
    }
    at += unit.size_bytes;
  }
  return absl::OkStatus();
}

std::string ServedNameOfPath(const std::string& path) {
  const std::string name = NameOf(path);
  std::string out;
  for (std::string_view rest = name; !rest.empty();) {
    const Utf8Unit unit = FirstUtf8Unit(rest);
    out += IsFit(unit) ? rest.substr(0, unit.size_bytes) : kReplacementCharacter;
    rest.remove_prefix(unit.size_bytes);
  }
  return out;
}

}  // namespace refrain::engine
