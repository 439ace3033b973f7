#include "engine/text/jinja/json.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 100;

Value Convert(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return json.get<uint64_t>() <= INT64_MAX ? Value::Int(json.get<int64_t>())
                                               : Value::BigInt(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return Value::String(json.get<std::string>());
    case Json::value_t::array: {
      Value::List items;
      for (const Json& item : json) items.push_back(Convert(item));
      return Value::MakeList(std::move(items));
    }
    case Json::value_t::object: {
      Map map;
      for (const auto& [key, value] : json.items()) map.Set(key, Convert(value));
      return Value::MakeMap(std::move(map));
    }
    default:
      return Value::None();
  }
}

}  // namespace

absl::StatusOr<Value> ParseJsonValue(std::string_view json) {
  bool too_deep = false;
  const Json parsed = Json::parse(
      json,
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(absl::StrCat("JSON nested deeper than ", kMaxDepth));
  }
  if (parsed.is_discarded()) return absl::InvalidArgumentError("malformed JSON");
  return Convert(parsed);
}

}  // namespace refrain::engine::jinja
