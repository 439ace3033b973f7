#include "engine/model/strict_json.h"

#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/json_error_place.h"
#include "engine/model/quoted_name.h"
#include "engine/text/seeded_hash.h"

namespace refrain::engine {

absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view what) {
  using Json = nlohmann::json;
  constexpr int kMaxDepth = 32;
  std::unordered_set<std::string, SeededHash> keys;
  absl::Status error;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) {
      error.Update(absl::InvalidArgumentError(
          absl::StrCat(std::string(what), ": JSON nested deeper than ", kMaxDepth)));
      return false;
    }
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.insert(key).second) {
        error.Update(absl::InvalidArgumentError(
            absl::StrCat(std::string(what), ": key ", QuotedName(key), " is there twice")));
      }
    }
    return error.ok();
  };
  Json parsed = Json::parse(text, check, /*allow_exceptions=*/false);
  if (!error.ok()) return error;
  if (parsed.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " is not valid JSON: ", JsonErrorPlace(text)));
  }
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), " is not a JSON object"));
  }
  return parsed;
}

std::string ShownJson(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  constexpr size_t kMaxBytes = 96;
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

}  // namespace refrain::engine
