#include "tools/loadgen/json_lines.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {

using Json = nlohmann::json;

absl::StatusOr<std::ifstream> OpenToRead(const std::string& path) {
  // One can be opened, and has no lines.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory"));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  }
  return stream;
}

JsonLines::JsonLines(std::string path, std::ifstream stream)
    : path_(std::move(path)), stream_(std::move(stream)) {}

absl::StatusOr<std::unique_ptr<JsonLines>> JsonLines::Open(const std::string& path) {
  auto stream = OpenToRead(path);
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<JsonLines>(new JsonLines(path, *std::move(stream)));
}

absl::StatusOr<bool> JsonLines::Next(Json* object) {
  std::string line;
  while (std::getline(stream_, line)) {
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    *object = Json::parse(line, nullptr, false);
    if (!object->is_object()) return Error("is no JSON object");
    return true;
  }
  if (stream_.bad()) {
    return absl::DataLossError(absl::StrCat(path_, ": cannot be read behind line ", line_));
  }
  return false;
}

absl::Status JsonLines::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": line ", line_, ": ", what));
}

}  // namespace refrain::loadgen
