#include "engine/json_error_place.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace refrain::engine {

std::string JsonErrorPlace(std::string_view text) {
  using Json = nlohmann::json;
  size_t byte = text.size();
  try {
    [[maybe_unused]] const Json parsed = Json::parse(text);
  } catch (const Json::parse_error& error) {
    byte = error.byte;
  }
  if (byte > text.size()) return absl::StrCat("ends too early, after ", text.size(), " bytes");
  return absl::StrCat("wrong at byte ", byte, " of ", text.size());
}

}  // namespace refrain::engine
