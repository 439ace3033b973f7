#ifndef REFRAIN_ENGINE_TEXT_JINJA_OPERATIONS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_OPERATIONS_H_

#include <optional>
#include <string>
#include <string_view>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// What Python's operators and conversions do with values. All throw TemplateError where Python
// raises, and charge the budget for what they read and make.

std::string_view TypeName(const Value& value);  // as Python spells it: str, int, NoneType
bool IsTrue(const Value& value);
bool Equal(const Value& a, const Value& b, Budget* budget);
// Negative, 0, positive. Numbers with numbers, strings with strings, lists with lists.
int Compare(const Value& a, const Value& b, Budget* budget);
// Whether a map can hold it as a key: strings, numbers, none.
bool IsMapKey(const Value& value);
bool Contains(const Value& container, const Value& item, Budget* budget);

// `op` is one of the arithmetic operators, kConcat or a comparison.
Value ApplyBinary(Operator op, const Value& a, const Value& b, Budget* budget);
Value ApplyUnary(Operator op, const Value& a);

Text ToText(const Value& value, Budget* budget);  // str()
Text Repr(const Value& value, Budget* budget);    // repr()
std::string FloatText(double number);             // repr(), shortest that reads back

// The items a loop visits: elements, keys of a map, characters of a string.
Value::List ToList(const Value& value, Budget* budget);

std::optional<size_t> LengthOrNull(const Value& value);    // in items or characters
std::optional<int64_t> IntegerOrNull(const Value& value);  // integers and booleans

// Element, character or entry; undefined when there is none.
Value ItemOf(const Value& object, const Value& key, Budget* budget);
// Null bounds are absent.
Value SliceOf(const Value& object, const Value* begin, const Value* end, const Value* step,
              Budget* budget);

struct JsonStyle {
  std::optional<std::string> indent;  // of one level; absent: all in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
Text ToJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_OPERATIONS_H_
