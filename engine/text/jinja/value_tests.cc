#include "engine/text/jinja/value_tests.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

using Kind = Value::Kind;

// Of the number, be it an integer or not.
bool HasRemainder(std::string_view test, const Value& value, const Value& divisor,
                  const Value& remainder, Budget* budget) {
  if (!value.is_number() || !divisor.is_number()) {
    throw TemplateError("test '" + std::string(test) + "' needs a number, not " +
                        std::string(TypeName(value.is_number() ? divisor : value)));
  }
  return Equal(ApplyBinary(Operator::kModulo, value, divisor, budget), remainder, budget);
}

bool TestKind(std::string_view name, const Value& value, bool* known) {
  *known = true;
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "boolean") return value.is_bool();
  if (name == "true") return value.is_bool() && value.AsBool();
  if (name == "false") return value.is_bool() && !value.AsBool();
  if (name == "integer") return value.is_int() || value.big_int() != 0;
  if (name == "float") return value.is_float() && value.big_int() == 0;
  if (name == "number") return value.is_number();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_map();
  if (name == "iterable") {
    return value.is_string() || value.is_list() || value.is_map() || value.is_undefined();
  }
  // Python's Undefined has the methods that these look for, and fails only when they are called.
  if (name == "sequence") {
    return value.is_string() || value.is_list() || value.is_map() || value.is_undefined();
  }
  if (name == "callable") {
    return (value.is_object() && value.AsObject()->type_name() != "Namespace") ||
           value.is_undefined();
  }
  *known = false;
  return false;
}

struct BinaryTest {
  std::string_view name;
  Operator op;
};

constexpr std::array<BinaryTest, 18> kBinaryTests = {{
    {"equalto", Operator::kEqual},
    {"eq", Operator::kEqual},
    {"==", Operator::kEqual},
    {"ne", Operator::kNotEqual},
    {"!=", Operator::kNotEqual},
    {"lt", Operator::kLess},
    {"<", Operator::kLess},
    {"lessthan", Operator::kLess},
    {"le", Operator::kLessEqual},
    {"<=", Operator::kLessEqual},
    {"gt", Operator::kGreater},
    {">", Operator::kGreater},
    {"greaterthan", Operator::kGreater},
    {"ge", Operator::kGreaterEqual},
    {">=", Operator::kGreaterEqual},
    {"in", Operator::kIn},
    {"sameas", Operator::kEqual},
    {"divisibleby", Operator::kModulo},
}};

constexpr std::array<std::string_view, 20> kUnaryTests = {
    "defined", "undefined", "none",   "boolean", "true",     "false",    "integer",
    "float",   "number",    "string", "mapping", "iterable", "sequence", "callable",
    "odd",     "even",      "upper",  "lower",   "filter",   "test"};

const BinaryTest* BinaryTestOrNull(std::string_view name) {
  const auto it = std::find_if(kBinaryTests.begin(), kBinaryTests.end(),
                               [&](const BinaryTest& test) { return test.name == name; });
  return it == kBinaryTests.end() ? nullptr : &*it;
}

bool ApplyBinaryTest(const BinaryTest& test, const Value& value, const Value& argument,
                     Budget* budget) {
  if (test.name == "divisibleby") {
    return HasRemainder(test.name, value, argument, Value::Int(0), budget);
  }
  if (test.name == "sameas" && value.kind() != argument.kind()) return false;
  return IsTrue(ApplyBinary(test.op, value, argument, budget));
}

}  // namespace

bool IsValueTest(std::string_view name) {
  return BinaryTestOrNull(name) != nullptr ||
         std::find(kUnaryTests.begin(), kUnaryTests.end(), name) != kUnaryTests.end();
}

bool ApplyValueTest(std::string_view name, const Value& value, const CallArguments& arguments,
                    Budget* budget) {
  budget->Step();
  if (const BinaryTest* binary = BinaryTestOrNull(name)) {
    const auto bound = arguments.Bind(name, {"other"});
    if (!bound[0].has_value()) {
      throw TemplateError("test '" + std::string(name) + "' needs an argument");
    }
    return ApplyBinaryTest(*binary, value, *bound[0], budget);
  }
  arguments.Bind(name, {});
  bool known = false;
  const bool result = TestKind(name, value, &known);
  if (known) return result;
  if (name == "odd" || name == "even") {
    return HasRemainder(name, value, Value::Int(2), Value::Int(name == "odd" ? 1 : 0), budget);
  }
  if (name == "filter") return value.is_string() && IsFilter(value.AsString());
  if (name == "test") return value.is_string() && IsValueTest(value.AsString());
  const Text text = ToText(value, budget);
  budget->Bytes(text.size());
  if (name == "upper") return IsUpper(text.bytes());
  if (name == "lower") return IsLower(text.bytes());
  throw TemplateError("test '" + std::string(name) + "' is not supported");
}

}  // namespace refrain::engine::jinja
