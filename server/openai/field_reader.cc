#include "server/openai/field_reader.h"
#include "engine/text/utf8.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/concat.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

// Absent and null are the same.
std::string TypeSchema(std::string_view type) {
  return Concat("{\"type\":[\"", type, "\",\"null\"]");
}

std::string RangeSchema(const Range& range) {
  std::string schema = ",\"minimum\":";
  AppendJsonNumber(range.min, &schema);
  schema += range.below_max ? ",\"exclusiveMaximum\":" : ",\"maximum\":";
  AppendJsonNumber(range.max, &schema);
  return schema;
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string_view prefix, Schemas* schemas)
    : object_(object), prefix_(prefix), schemas_(schemas) {}

void FieldReader::Describe(std::string_view name, std::string schema) {
  if (schemas_ == nullptr) return;
  const auto is_it = [&](const auto& known) { return known.first == name; };
  if (std::any_of(schemas_->begin(), schemas_->end(), is_it)) return;
  schemas_->emplace_back(std::string(name), std::move(schema));
}

const Json* FieldReader::AnyOrNull(std::string_view name) {
  if (describes()) Describe(name, "{}");
  return Find(name);
}

const Json* FieldReader::Find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(name);
  if (found == object_.end() || found->is_null()) return nullptr;
  return &*found;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  if (describes()) Describe(name, TypeSchema("boolean") + "}");
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  RefuseType(name, *value, "a boolean");
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(std::string_view name, Range range) {
  if (describes()) Describe(name, TypeSchema("integer") + RangeSchema(range) + "}");
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    RefuseType(name, *value, "an integer");
    return std::nullopt;
  }
  const std::optional<int64_t> number = IntegerValue(*value);
  // As a double the greatest int64_t is 2^63.
  const bool top = range.max >= 0x1p63 && number.value_or(0) > 0;
  if (number.has_value() && (top || range.Contains(static_cast<double>(*number)))) return number;
  Refuse(name, Concat("must be an integer of ", range.Text(), ", not ", value->dump()));
  return std::nullopt;
}

std::optional<double> FieldReader::Number(std::string_view name, Range range) {
  if (describes()) Describe(name, TypeSchema("number") + RangeSchema(range) + "}");
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    RefuseType(name, *value, "a number");
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (range.Contains(number)) return number;
  Refuse(name, Concat("must be ", range.Text(), ", not ", value->dump()));
  return std::nullopt;
}

std::optional<std::string> FieldReader::String(std::string_view name, size_t max_characters) {
  if (describes()) {
    const bool any = max_characters == SIZE_MAX;
    Describe(name,
             TypeSchema("string") + (any ? "}" : Concat(",\"maxLength\":", max_characters, "}")));
  }
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    RefuseType(name, *value, "a string");
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() <= max_characters) return text;
  const size_t characters = engine::CountUtf8Characters(text);
  if (characters <= max_characters) return text;
  Refuse(name,
         Concat("is ", characters, " characters long; at most ", max_characters, " are accepted"));
  return std::nullopt;
}

const Json* FieldReader::ObjectOrNull(std::string_view name) {
  if (describes()) Describe(name, TypeSchema("object") + "}");
  const Json* value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  RefuseType(name, *value, "an object");
  return nullptr;
}

const Json* FieldReader::ArrayOrNull(std::string_view name) {
  if (describes()) Describe(name, TypeSchema("array") + "}");
  const Json* value = Find(name);
  if (value == nullptr || value->is_array()) return value;
  RefuseType(name, *value, "an array");
  return nullptr;
}

void FieldReader::RefuseType(std::string_view name, const Json& value, std::string_view expected) {
  const std::string shown = value.is_structured() ? "" : Concat(" (", ShownValue(value), ")");
  Refuse(name, Concat("must be ", expected, ", not ", JsonTypeName(value), shown));
}

void FieldReader::Refuse(std::string_view name, std::string_view problem) {
  const std::string param = Concat(prefix_, name);
  Fail(InvalidField(param, Concat("'", param, "' ", problem)));
}

void FieldReader::Fail(const absl::Status& status) { status_.Update(status); }

std::vector<std::string> FieldReader::UnknownNames() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) unknown.push_back(name);
  }
  return unknown;
}

absl::Status CheckIsObject(const Json& body) {
  if (body.is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("the request body must be a JSON object, not ", JsonTypeName(body)));
}

}  // namespace refrain::server::openai
