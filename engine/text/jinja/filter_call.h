#ifndef REFRAIN_ENGINE_TEXT_JINJA_FILTER_CALL_H_
#define REFRAIN_ENGINE_TEXT_JINJA_FILTER_CALL_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/jinja/value.h"

// What filters are given, and how they read it. Inside jinja/ only; all throw TemplateError.
namespace refrain::engine::jinja {

// One application of a filter.
struct FilterCall {
  std::string_view name;
  const Value& input;
  const CallArguments& arguments;
  Budget* budget;

  std::vector<std::optional<Value>> Bind(std::initializer_list<std::string_view> parameters) const {
    return arguments.Bind(name, parameters);
  }
  // The text of an argument, which may be read although nothing is made of it.
  Text ArgumentText(const Value& argument) const {
    Text text = ToText(argument, budget);
    budget->Bytes(2 * text.size());
    return text;
  }
  Text InputText() const {
    Text text = ToText(input, budget);
    budget->Bytes(4 * text.size());
    return text;
  }
  Value::List InputList() const { return ToList(input, budget); }
  // map, select and their like look at what is not true (none, 0) as at an empty list.
  Value::List InputListIfTrue() const { return IsTrue(input) ? InputList() : Value::List(); }
};

inline bool FlagOr(const std::optional<Value>& value, bool fallback) {
  return value.has_value() ? IsTrue(*value) : fallback;
}

inline int64_t IntegerArgument(const FilterCall& call, const std::optional<Value>& value,
                               int64_t fallback) {
  if (!value.has_value() || value->is_none()) return fallback;
  const std::optional<int64_t> number = IntegerOrNull(*value);
  if (!number.has_value()) {
    throw TemplateError("filter '" + std::string(call.name) + "' needs an integer, not " +
                        std::string(TypeName(*value)));
  }
  return *number;
}

inline const std::string& StringArgument(const FilterCall& call,
                                         const std::optional<Value>& value) {
  if (!value.has_value() || !value->is_string()) {
    throw TemplateError("filter '" + std::string(call.name) + "' needs a string argument");
  }
  call.budget->Bytes(value->AsText().size());
  return value->AsString();
}

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_FILTER_CALL_H_
