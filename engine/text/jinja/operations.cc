#include "engine/text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/numbers.h"
#include "engine/text/jinja/string_functions.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/utf8.h"

namespace refrain::engine::jinja {
namespace {

using Kind = Value::Kind;

[[noreturn]] void FailUndefined(const Value& value) {
  throw TemplateError("'" + std::string(value.undefined_what()) + "' is undefined");
}

[[noreturn]] void FailOperands(std::string_view what, const Value& a, const Value& b) {
  if (a.is_undefined()) FailUndefined(a);
  if (b.is_undefined()) FailUndefined(b);
  throw TemplateError("cannot " + std::string(what) + " " + std::string(TypeName(a)) + " and " +
                      std::string(TypeName(b)));
}

double AsDouble(const Value& number) {
  if (number.is_bool()) return number.AsBool() ? 1 : 0;
  return number.is_int() ? static_cast<double>(number.AsInt()) : number.AsFloat();
}

[[noreturn]] void FailOverflow() { throw TemplateError("integer result beyond 64 bits"); }

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw TemplateError("zero to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailOverflow();
  }
  return Value::Int(result);
}

Value IntegerArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) FailOverflow();
      return Value::Int(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) FailOverflow();
      return Value::Int(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) FailOverflow();
      return Value::Int(result);
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (b == 0) throw TemplateError("division by zero");
  if (op == Operator::kDivide) return Value::Float(static_cast<double>(a) / b);
  if (b == -1)
    return op == Operator::kModulo ? Value::Int(0) : IntegerArithmetic(Operator::kSubtract, 0, a);
  // Python rounds the quotient down; the remainder has the sign of the divisor.
  const bool adjust = a % b != 0 && (a < 0) != (b < 0);
  if (op == Operator::kFloorDivide) return Value::Int(a / b - (adjust ? 1 : 0));
  return Value::Int(a % b + (adjust ? b : 0));
}

Value FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower:
      return Value::Float(FloatPower(a, b));
    default:
      break;
  }
  if (b == 0) throw TemplateError("division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  const auto [quotient, remainder] = DivideFloats(a, b);
  return Value::Float(op == Operator::kModulo ? remainder : quotient);
}

// Of `~`, which escapes nothing and knows no HTML.
Value Joined(const Text& a, const Text& b, Budget* budget) {
  budget->String(a.size() + b.size());
  Text joined;
  joined.Append(a);
  joined.Append(b);
  return Value::String(std::move(joined));
}

Value RepeatText(const Text& text, int64_t times, Budget* budget) {
  Text out;
  out.set_is_html(text.is_html());
  if (times <= 0 || text.size() == 0) return Value::String(std::move(out));
  if (times > static_cast<int64_t>(Budget::kMaxStringBytes)) budget->String(times);
  budget->String(text.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out.Append(text);
  return Value::String(std::move(out));
}

Value RepeatList(const Value& list, int64_t times, Budget* budget) {
  const Value::List& items = list.AsList();
  if (times > static_cast<int64_t>(Budget::kMaxListItems)) times = Budget::kMaxListItems + 1;
  budget->List(items.size() * static_cast<size_t>(std::max<int64_t>(times, 0)));
  Value::List out;
  for (int64_t i = 0; i < times && !items.empty(); ++i) {
    out.insert(out.end(), items.begin(), items.end());
  }
  return list.is_tuple() ? Value::MakeTuple(std::move(out)) : Value::MakeList(std::move(out));
}

Value Arithmetic(Operator op, const Value& a, const Value& b, Budget* budget) {
  if (a.is_number() && b.is_number()) {
    const std::optional<int64_t> x = IntegerOrNull(a);
    const std::optional<int64_t> y = IntegerOrNull(b);
    if (x.has_value() && y.has_value()) return IntegerArithmetic(op, *x, *y);
    return FloatArithmetic(op, AsDouble(a), AsDouble(b));
  }
  if (op == Operator::kAdd && a.is_string() && b.is_string()) {
    return Value::String(AddTexts(a.AsText(), b.AsText(), budget));
  }
  if (op == Operator::kAdd && a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    budget->List(a.AsList().size() + b.AsList().size());
    Value::List items = a.AsList();
    items.insert(items.end(), b.AsList().begin(), b.AsList().end());
    return a.is_tuple() ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
  }
  if (op == Operator::kModulo && a.is_string()) {
    return Value::String(FormatPercent(a.AsText(), b, budget));
  }
  if (op == Operator::kMultiply) {
    const Value& sequence = a.is_string() || a.is_list() ? a : b;
    const std::optional<int64_t> times = IntegerOrNull(&sequence == &a ? b : a);
    if (times.has_value() && sequence.is_string()) {
      return RepeatText(sequence.AsText(), *times, budget);
    }
    if (times.has_value() && sequence.is_list()) return RepeatList(sequence, *times, budget);
  }
  switch (op) {
    case Operator::kAdd:
      FailOperands("add", a, b);
    case Operator::kSubtract:
      FailOperands("subtract", a, b);
    case Operator::kMultiply:
      FailOperands("multiply", a, b);
    default:
      FailOperands("divide or take a power of", a, b);
  }
}

bool Compares(Operator op, const Value& a, const Value& b, Budget* budget) {
  switch (op) {
    case Operator::kEqual:
      return Equal(a, b, budget);
    case Operator::kNotEqual:
      return !Equal(a, b, budget);
    case Operator::kIn:
      return Contains(b, a, budget);
    case Operator::kNotIn:
      return !Contains(b, a, budget);
    default:
      break;
  }
  if (a.is_float() || b.is_float()) {
    // A NaN is neither less nor greater nor equal.
    if (a.is_number() && b.is_number() && (std::isnan(AsDouble(a)) || std::isnan(AsDouble(b)))) {
      return false;
    }
  }
  const int order = Compare(a, b, budget);
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return value.big_int() != 0 ? "int" : "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return value.is_tuple() ? "tuple" : "list";
    case Kind::kMap:
      return "dict";
    case Kind::kObject:
      return value.AsObject()->type_name();
  }
  return "?";
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.AsBool();
    case Kind::kInt:
      return value.AsInt() != 0;
    case Kind::kFloat:
      return value.AsFloat() != 0;
    case Kind::kString:
      return value.AsText().size() > 0;
    case Kind::kList:
      return !value.AsList().empty();
    case Kind::kMap:
      return value.AsMap().size() > 0;
    case Kind::kObject:
      return true;
  }
  return false;
}

bool Equal(const Value& a, const Value& b, Budget* budget) {
  budget->Step();
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return *IntegerOrNull(a) == *IntegerOrNull(b);
    return AsDouble(a) == AsDouble(b);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      budget->Bytes(std::min(a.AsText().size(), b.AsText().size()));
      return a.AsString() == b.AsString();
    case Kind::kList: {
      const Value::List& x = a.AsList();
      const Value::List& y = b.AsList();
      if (a.is_tuple() != b.is_tuple() || x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!Equal(x[i], y[i], budget)) return false;
      }
      return true;
    }
    case Kind::kMap: {
      if (a.AsMap().size() != b.AsMap().size()) return false;
      for (const Map::Entry& entry : a.AsMap().entries()) {
        budget->Key(entry.key);
        const Value* other = b.AsMap().FindOrNull(entry.key);
        if (other == nullptr || !Equal(entry.value, *other, budget)) return false;
      }
      return true;
    }
    case Kind::kObject:
      return a.AsObject() == b.AsObject();
    default:
      return true;  // none, undefined
  }
}

int Compare(const Value& a, const Value& b, Budget* budget) {
  budget->Step();
  if (a.is_number() && b.is_number()) {
    const std::optional<int64_t> x = IntegerOrNull(a);
    const std::optional<int64_t> y = IntegerOrNull(b);
    if (x.has_value() && y.has_value()) return *x < *y ? -1 : *x > *y ? 1 : 0;
    return AsDouble(a) < AsDouble(b) ? -1 : AsDouble(a) > AsDouble(b) ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {
    budget->Bytes(std::min(a.AsText().size(), b.AsText().size()));
    return a.AsString().compare(b.AsString());  // UTF-8 sorts as code points do
  }
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    const size_t shared = std::min(a.AsList().size(), b.AsList().size());
    for (size_t i = 0; i < shared; ++i) {
      if (!Equal(a.AsList()[i], b.AsList()[i], budget)) {
        return Compare(a.AsList()[i], b.AsList()[i], budget);
      }
    }
    return a.AsList().size() < b.AsList().size() ? -1 : a.AsList().size() > b.AsList().size();
  }
  FailOperands("order", a, b);
}

bool IsMapKey(const Value& value) {
  return value.is_string() || value.is_number() || value.is_none();
}

bool Contains(const Value& container, const Value& item, Budget* budget) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString: {
      if (!item.is_string()) FailOperands("search a string for", container, item);
      const std::string& haystack = container.AsString();
      const std::string& needle = item.AsString();
      budget->Bytes(haystack.size() + needle.size());
      return memmem(haystack.data(), haystack.size(), needle.data(), needle.size()) != nullptr;
    }
    case Kind::kList:
      return std::any_of(container.AsList().begin(), container.AsList().end(),
                         [&](const Value& element) { return Equal(element, item, budget); });
    case Kind::kMap:
      if (item.is_map() || (item.is_list() && !item.is_tuple())) {
        throw TemplateError("a value of type " + std::string(TypeName(item)) + " cannot be a key");
      }
      budget->Key(item);
      return container.AsMap().FindOrNull(item) != nullptr;
    default:
      throw TemplateError("a value of type " + std::string(TypeName(container)) +
                          " contains nothing");
  }
}

Value ApplyBinary(Operator op, const Value& a, const Value& b, Budget* budget) {
  switch (op) {
    case Operator::kAdd:
    case Operator::kSubtract:
    case Operator::kMultiply:
    case Operator::kDivide:
    case Operator::kFloorDivide:
    case Operator::kModulo:
    case Operator::kPower:
      return Arithmetic(op, a, b, budget);
    case Operator::kConcat:
      return Joined(ToText(a, budget), ToText(b, budget), budget);
    default:
      return Value::Bool(Compares(op, a, b, budget));
  }
}

Value ApplyUnary(Operator op, const Value& a) {
  if (op == Operator::kNot) return Value::Bool(!IsTrue(a));
  if (!a.is_number()) FailOperands("negate", a, a);
  if (a.is_float()) return Value::Float(op == Operator::kNegate ? -a.AsFloat() : a.AsFloat());
  const int64_t number = *IntegerOrNull(a);
  return op == Operator::kNegate ? IntegerArithmetic(Operator::kSubtract, 0, number)
                                 : Value::Int(number);
}

Value::List ToList(const Value& value, Budget* budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
      budget->List(value.AsList().size());
      return value.AsList();
    case Kind::kMap: {
      budget->List(value.AsMap().size());
      Value::List keys;
      for (const Map::Entry& entry : value.AsMap().entries()) keys.push_back(entry.key);
      return keys;
    }
    case Kind::kString: {
      const Text& text = value.AsText();
      budget->Bytes(text.size());
      const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
      budget->List(offsets.size());
      Value::List characters;
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        characters.push_back(Value::String(text.Substr(offsets[i], offsets[i + 1] - offsets[i])));
      }
      return characters;
    }
    default:
      throw TemplateError("a value of type " + std::string(TypeName(value)) + " is not iterable");
  }
}

std::optional<size_t> LengthOrNull(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return CountCharacters(value.AsString());
    case Kind::kList:
      return value.AsList().size();
    case Kind::kMap:
      return value.AsMap().size();
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> IntegerOrNull(const Value& value) {
  if (value.is_bool()) return value.AsBool() ? 1 : 0;
  if (value.is_int()) return value.AsInt();
  return std::nullopt;
}

Value ItemOf(const Value& object, const Value& key, Budget* budget) {
  if (object.is_undefined()) FailUndefined(object);
  if (object.is_map()) {
    budget->Key(key);
    const Value* found = object.AsMap().FindOrNull(key);
    if (found != nullptr) return *found;
  }
  if (object.is_list() && key.is_string()) {
    if (const Value* const found = object.NamedItemOrNull(key.AsString())) return *found;
  }
  const std::optional<int64_t> index = IntegerOrNull(key);
  if (index.has_value() && (object.is_list() || object.is_string())) {
    if (object.is_list()) {
      const auto size = static_cast<int64_t>(object.AsList().size());
      const int64_t at = *index < 0 ? *index + size : *index;
      if (at >= 0 && at < size) return object.AsList()[at];
    } else {
      const auto found = FindCharacter(object.AsString(), *index);
      budget->Bytes(found.has_value() && *index >= 0 ? found->first : object.AsText().size());
      if (found.has_value()) {
        const Text& text = object.AsText();
        return HtmlLike(text, Value::String(text.Substr(found->first, found->second)), budget);
      }
    }
  }
  std::string what = std::string(TypeName(object)) + " object has no element ";
  if (key.is_string()) {
    what += key.AsString().substr(0, 100);
  } else if (index.has_value()) {
    what += std::to_string(*index);
  } else {
    what += "of type " + std::string(TypeName(key));
  }
  return Value::Undefined(std::move(what));
}

Value SliceOf(const Value& object, const Value* begin, const Value* end, const Value* step,
              Budget* budget) {
  if (object.is_undefined()) FailUndefined(object);
  if (!object.is_string() && !object.is_list()) {
    return Value::Undefined(std::string(TypeName(object)) + " object has no slices");
  }
  const auto bound = [](const Value* value) -> std::optional<int64_t> {
    if (value == nullptr || value->is_none()) return std::nullopt;
    const std::optional<int64_t> number = IntegerOrNull(*value);
    if (!number.has_value()) throw TemplateError("slice bounds are integers");
    return number;
  };
  const int64_t stride = bound(step).value_or(1);
  if (stride == 0) throw TemplateError("slice step is zero");
  std::vector<size_t> offsets;
  if (object.is_string()) {
    budget->Bytes(object.AsText().size());
    offsets = CharacterOffsets(object.AsString());
  }
  const int64_t size = object.is_string() ? static_cast<int64_t>(offsets.size()) - 1
                                          : static_cast<int64_t>(object.AsList().size());
  const auto place = [&](std::optional<int64_t> wanted, int64_t fallback) {
    if (!wanted.has_value()) return fallback;
    const int64_t at = *wanted < 0 ? (*wanted < -size ? -1 : *wanted + size) : *wanted;
    return stride > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t from = place(bound(begin), stride > 0 ? 0 : size - 1);
  const int64_t to = place(bound(end), stride > 0 ? size : -1);
  if (object.is_string() && stride == 1) {
    const size_t size_bytes = from < to ? offsets[to] - offsets[from] : 0;
    budget->String(size_bytes);
    const Value part = Value::String(object.AsText().Substr(offsets[from], size_bytes));
    return HtmlLike(object.AsText(), part, budget);
  }
  Text text;
  Value::List items;
  if (object.is_string()) budget->String(object.AsText().size());
  if (object.is_list()) budget->List(object.AsList().size());
  // Beyond the size a stride takes one element and leaves.
  const int64_t hop = std::clamp<int64_t>(stride, -size - 1, size + 1);
  for (int64_t i = from; hop > 0 ? i < to : i > to; i += hop) {
    if (object.is_string()) {
      text.Append(object.AsText().Substr(offsets[i], offsets[i + 1] - offsets[i]));
    } else {
      items.push_back(object.AsList()[i]);
    }
  }
  if (object.is_string()) {
    return HtmlLike(object.AsText(), Value::String(std::move(text)), budget);
  }
  return object.is_tuple() ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

}  // namespace refrain::engine::jinja
