#include "engine/text/json_members.h"

#include <nlohmann/json.hpp>

namespace refrain::engine {

using Json = nlohmann::json;

const Json* FindOrNull(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string StringOf(const Json& object, const char* key) {
  const Json* member = FindOrNull(object, key);
  return member != nullptr && member->is_string() ? member->get<std::string>() : "";
}

bool BoolOf(const Json& object, const char* key, bool fallback) {
  const Json* member = FindOrNull(object, key);
  return member != nullptr && member->is_boolean() ? member->get<bool>() : fallback;
}

std::optional<int64_t> IntOf(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<int64_t>();
}

}  // namespace refrain::engine
