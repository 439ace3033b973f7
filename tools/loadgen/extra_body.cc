#include "tools/loadgen/extra_body.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseObject(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open, outermost first
  std::optional<std::string> twice;
  const auto watch = [&](int, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && !twice.has_value()) twice = key;
    }
    return true;
  };
  Json object = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(text), " is no JSON object"));
  }
  if (twice.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key \"", *twice, "\" occurs twice in one object"));
  }
  return object;
}

bool AsksForUsage(const Json& stream_options) {
  return stream_options.is_object() && stream_options.value("include_usage", Json()) == true;
}

// Why a report could not be true of requests with this member; empty: it can.
std::string Objection(const std::string& name, const Json& value) {
  if (name == "model") return "is what the report names: use --model";
  if (name == "prompt" || name == "messages") {
    return "comes from the workload: use --workload=jsonl --file=PATH for prompts of your own";
  }
  if (name == "stream" && value != true) {
    return "must stay true: latencies are those of streams; leave it out";
  }
  if (name == "stream_options" && !AsksForUsage(value)) {
    return "must hold \"include_usage\": true, by which tokens are counted";
  }
  if (name == "n" && !value.is_null() && value != 1) {
    return "must be 1, for several choices would count as one answer: use --requests, --rate or "
           "--users for more of them";
  }
  return "";
}

}  // namespace

absl::StatusOr<ExtraMembers> ParseExtraBody(std::string_view json_object) {
  const absl::StatusOr<Json> object = ParseObject(json_object);
  if (!object.ok()) return object.status();
  ExtraMembers members;
  for (const auto& [name, value] : object->items()) {
    const std::string objection = Objection(name, value);
    if (!objection.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" ", objection));
    }
    members[name] = value.dump();
  }
  return members;
}

}  // namespace refrain::loadgen
