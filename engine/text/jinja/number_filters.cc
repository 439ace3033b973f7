#include "engine/text/jinja/number_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/numbers.h"

namespace refrain::engine::jinja {
namespace {

[[noreturn]] void FailUndefinedInput(const FilterCall& call) {
  throw TemplateError("'" + std::string(call.input.undefined_what()) + "' is undefined");
}

}  // namespace

Value ToInteger(const FilterCall& call) {
  const auto bound = call.Bind({"default", "base"});
  const Value fallback = bound[0].value_or(Value::Int(0));
  const int64_t base = IntegerArgument(call, bound[1], 10);
  if (const std::optional<int64_t> number = IntegerOrNull(call.input)) return Value::Int(*number);
  if (call.input.is_undefined()) FailUndefinedInput(call);
  if (call.input.big_int() != 0) return call.input;
  if (call.input.is_float()) {
    const double number = call.input.AsFloat();
    if (std::isinf(number)) throw TemplateError("filter 'int': infinity is no integer");
    return std::isnan(number) ? fallback : Value::Int(TruncateFloat(number));
  }
  if (!call.input.is_string()) return fallback;
  const std::string text = Strip(call.InputText(), Side::kBoth).bytes();
  if (const auto number = ParseInteger(text, base)) return Value::Int(*number);
  const std::optional<double> real = ParseFloat(text);
  return real.has_value() && std::isfinite(*real) ? Value::Int(TruncateFloat(*real)) : fallback;
}

Value ToFloat(const FilterCall& call) {
  const auto bound = call.Bind({"default"});
  if (const std::optional<int64_t> number = IntegerOrNull(call.input)) {
    return Value::Float(static_cast<double>(*number));
  }
  if (call.input.is_float()) return call.input;
  if (call.input.is_undefined()) FailUndefinedInput(call);
  if (call.input.is_string()) {
    const auto number = ParseFloat(Strip(call.InputText(), Side::kBoth).bytes());
    if (number.has_value()) return Value::Float(*number);
  }
  return bound[0].value_or(Value::Float(0));
}

Value Absolute(const FilterCall& call) {
  call.Bind({});
  if (call.input.big_int() != 0) return call.input;
  if (call.input.is_float()) return Value::Float(std::fabs(call.input.AsFloat()));
  const std::optional<int64_t> number = IntegerOrNull(call.input);
  if (!number.has_value()) throw TemplateError("filter 'abs' needs a number");
  return *number < 0 ? ApplyUnary(Operator::kNegate, call.input) : Value::Int(*number);
}

Value Round(const FilterCall& call) {
  const auto bound = call.Bind({"precision", "method"});
  if (!call.input.is_number()) throw TemplateError("filter 'round' needs a number");
  const int64_t precision = std::clamp<int64_t>(IntegerArgument(call, bound[0], 0), -300, 300);
  const std::string method = bound[1].has_value() ? StringArgument(call, bound[1]) : "common";
  const double number = call.input.is_float() ? call.input.AsFloat()
                                              : static_cast<double>(*IntegerOrNull(call.input));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  // Python's integers in between have no negative zero.
  if (method == "ceil") return Value::Float((std::ceil(number * scale) + 0.0) / scale);
  if (method == "floor") return Value::Float((std::floor(number * scale) + 0.0) / scale);
  if (method != "common") throw TemplateError("filter 'round' has no method '" + method + "'");
  if (const std::optional<int64_t> integer = IntegerOrNull(call.input)) {
    return Value::Int(RoundInteger(*integer, precision));
  }
  return Value::Float(RoundFloat(number, precision));
}

}  // namespace refrain::engine::jinja
