#include "engine/text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/string_functions.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

struct Call {
  const Value& object;
  std::string_view name;
  const CallArguments& arguments;
  Budget* budget;

  std::vector<std::optional<Value>> Bind(std::initializer_list<std::string_view> parameters) const {
    return arguments.Bind(name, parameters);
  }
  const Text& text() const { return object.AsText(); }
};

[[noreturn]] void FailArgument(const Call& call, std::string_view wanted) {
  throw TemplateError(std::string(call.name) + "() needs " + std::string(wanted));
}

const Text& TextArgument(const Call& call, const std::optional<Value>& value) {
  if (!value.has_value() || !value->is_string()) FailArgument(call, "a string");
  call.budget->Bytes(value->AsText().size());
  return value->AsText();
}

std::optional<std::string_view> OptionalString(const Call& call,
                                               const std::optional<Value>& value) {
  if (!value.has_value() || value->is_none()) return std::nullopt;
  return TextArgument(call, value).bytes();
}

int64_t IntegerArgument(const Call& call, const std::optional<Value>& value, int64_t fallback) {
  if (!value.has_value()) return fallback;
  const std::optional<int64_t> number = IntegerOrNull(*value);
  if (!number.has_value()) FailArgument(call, "an integer");
  return *number;
}

Value StripMethod(const Call& call) {
  const auto bound = call.Bind({"chars"});
  const Side side = call.name == "strip"    ? Side::kBoth
                    : call.name == "lstrip" ? Side::kLeft
                                            : Side::kRight;
  const std::optional<std::string_view> unwanted = OptionalString(call, bound[0]);
  return Value::String(unwanted.has_value() ? Strip(call.text(), side, *unwanted)
                                            : Strip(call.text(), side));
}

Value SplitMethod(const Call& call) {
  const auto bound = call.Bind({"sep", "maxsplit"});
  return Value::MakeList(SplitText(call.text(), OptionalString(call, bound[0]),
                                   IntegerArgument(call, bound[1], -1), call.name == "rsplit",
                                   call.budget));
}

Value SplitLinesMethod(const Call& call) {
  const auto bound = call.Bind({"keepends"});
  return Value::MakeList(
      SplitLines(call.text(), bound[0].has_value() && IsTrue(*bound[0]), call.budget));
}

Value CaseMethod(const Call& call) {
  call.Bind({});
  call.budget->Bytes(3 * call.text().size());
  if (call.name == "upper") return Value::String(ToUpper(call.text()));
  if (call.name == "lower") return Value::String(ToLower(call.text()));
  if (call.name == "capitalize") return Value::String(Capitalize(call.text()));
  return Value::String(ToTitle(call.text()));
}

// startswith and endswith: a string or a tuple of strings.
Value AffixMethod(const Call& call) {
  const auto bound = call.Bind({"affix"});
  Value::List affixes;
  if (bound[0].has_value() && bound[0]->is_tuple()) {
    affixes = bound[0]->AsList();
  } else if (bound[0].has_value()) {
    affixes.push_back(*bound[0]);
  }
  if (affixes.empty() && !bound[0].has_value()) FailArgument(call, "a string");
  const std::string& text = call.text().bytes();
  for (const Value& affix : affixes) {
    const std::string& wanted = TextArgument(call, affix).bytes();
    if (call.name == "startswith" ? text.starts_with(wanted) : text.ends_with(wanted)) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

Value RemoveAffixMethod(const Call& call) {
  const auto bound = call.Bind({"affix"});
  const Text& text = call.text();
  const std::string& affix = TextArgument(call, bound[0]).bytes();
  if (call.name == "removeprefix" && text.bytes().starts_with(affix)) {
    return Value::String(text.Substr(affix.size(), text.size()));
  }
  if (call.name == "removesuffix" && text.bytes().ends_with(affix)) {
    return Value::String(text.Substr(0, text.size() - affix.size()));
  }
  return call.object;
}

Value ReplaceMethod(const Call& call) {
  const auto bound = call.Bind({"old", "new", "count"});
  return Value::String(ReplaceText(call.text(), TextArgument(call, bound[0]).bytes(),
                                   TextArgument(call, bound[1]),
                                   IntegerArgument(call, bound[2], -1), call.budget));
}

Value JoinMethod(const Call& call) {
  const auto bound = call.Bind({"iterable"});
  if (!bound[0].has_value()) FailArgument(call, "a list");
  for (const Value& item : ToList(*bound[0], call.budget)) {
    if (!item.is_string()) FailArgument(call, "strings");
  }
  return ApplyFilter("join", *bound[0], CallArguments{{call.object}, {}}, call.budget);
}

// In characters, -1 where there is none.
Value FindMethod(const Call& call) {
  const auto bound = call.Bind({"sub"});
  const std::string& text = call.text().bytes();
  const std::string& wanted = TextArgument(call, bound[0]).bytes();
  if (call.name == "count") {
    const std::optional<std::string_view> separator(wanted);
    if (wanted.empty()) return Value::Int(static_cast<int64_t>(CountCharacters(text)) + 1);
    return Value::Int(static_cast<int64_t>(
        SplitText(call.text(), separator, -1, /*from_right=*/false, call.budget).size() - 1));
  }
  size_t at = std::string::npos;
  if (call.name == "rfind") {
    call.budget->Bytes(text.size());
    const Value::List parts =
        wanted.empty() ? Value::List()
                       : SplitText(call.text(), wanted, 1, /*from_right=*/true, call.budget);
    if (wanted.empty()) at = text.size();
    if (parts.size() == 2) at = parts[0].AsText().size();
  } else {
    const void* found = memmem(text.data(), text.size(), wanted.data(), wanted.size());
    if (found != nullptr) at = static_cast<const char*>(found) - text.data();
  }
  if (at == std::string::npos) {
    if (call.name == "index") throw TemplateError("index(): substring not found");
    return Value::Int(-1);
  }
  return Value::Int(static_cast<int64_t>(CountCharacters(std::string_view(text).substr(0, at))));
}

Value IsMethod(const Call& call) {
  call.Bind({});
  const std::string& text = call.text().bytes();
  if (call.name == "isupper") return Value::Bool(IsUpper(text));
  if (call.name == "islower") return Value::Bool(IsLower(text));
  if (call.name == "isspace") {
    return Value::Bool(!text.empty() && Strip(call.text(), Side::kBoth).size() == 0);
  }
  // Digits and letters beyond ASCII are not told apart here; a template that asks is about ids.
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return Value::Bool(!text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    if (call.name == "isalpha") return is_letter(c);
    if (call.name == "isalnum") return is_letter(c) || is_digit(c);
    return is_digit(c);
  }));
}

Value DictItems(const Call& call) {
  call.Bind({});
  if (call.name == "keys") return Value::MakeList(ToList(call.object, call.budget));
  if (call.name == "items") return ApplyFilter("items", call.object, {}, call.budget);
  call.budget->List(call.object.AsMap().size());
  Value::List values;
  for (const Map::Entry& entry : call.object.AsMap().entries()) values.push_back(entry.value);
  return Value::MakeList(std::move(values));
}

Value DictGet(const Call& call) {
  const auto bound = call.Bind({"key", "default"});
  if (!bound[0].has_value()) FailArgument(call, "a key");
  const Value* found = call.object.AsMap().FindOrNull(*bound[0]);
  return found != nullptr ? *found : bound[1].value_or(Value::None());
}

Value ListFind(const Call& call) {
  const auto bound = call.Bind({"value"});
  if (!bound[0].has_value()) FailArgument(call, "a value");
  int64_t count = 0;
  const Value::List& items = call.object.AsList();
  for (size_t i = 0; i < items.size(); ++i) {
    if (!Equal(items[i], *bound[0], call.budget)) continue;
    if (call.name == "index") return Value::Int(static_cast<int64_t>(i));
    ++count;
  }
  if (call.name == "index") throw TemplateError("index(): value not found");
  return Value::Int(count);
}

struct Method {
  Value::Kind kind;
  std::string_view name;
  Value (*apply)(const Call& call);
};

constexpr Value::Kind kString = Value::Kind::kString;
constexpr Value::Kind kMap = Value::Kind::kMap;
constexpr Value::Kind kList = Value::Kind::kList;

constexpr std::array<Method, 34> kMethods = {{
    {kString, "strip", StripMethod},
    {kString, "lstrip", StripMethod},
    {kString, "rstrip", StripMethod},
    {kString, "split", SplitMethod},
    {kString, "rsplit", SplitMethod},
    {kString, "splitlines", SplitLinesMethod},
    {kString, "upper", CaseMethod},
    {kString, "lower", CaseMethod},
    {kString, "capitalize", CaseMethod},
    {kString, "title", CaseMethod},
    {kString, "startswith", AffixMethod},
    {kString, "endswith", AffixMethod},
    {kString, "removeprefix", RemoveAffixMethod},
    {kString, "removesuffix", RemoveAffixMethod},
    {kString, "replace", ReplaceMethod},
    {kString, "join", JoinMethod},
    {kString, "find", FindMethod},
    {kString, "rfind", FindMethod},
    {kString, "index", FindMethod},
    {kString, "count", FindMethod},
    {kString, "isupper", IsMethod},
    {kString, "islower", IsMethod},
    {kString, "isspace", IsMethod},
    {kString, "isdigit", IsMethod},
    {kString, "isnumeric", IsMethod},
    {kString, "isalpha", IsMethod},
    {kString, "isalnum", IsMethod},
    {kMap, "items", DictItems},
    {kMap, "keys", DictItems},
    {kMap, "values", DictItems},
    {kMap, "get", DictGet},
    {kList, "index", ListFind},
    {kList, "count", ListFind},
    {kString, "isdecimal", IsMethod},
}};

const Method* MethodOrNull(const Value& object, std::string_view name) {
  const auto it = std::find_if(kMethods.begin(), kMethods.end(), [&](const Method& method) {
    return method.kind == object.kind() && method.name == name;
  });
  return it == kMethods.end() ? nullptr : &*it;
}

}  // namespace

bool IsMethodName(std::string_view name) {
  return std::any_of(kMethods.begin(), kMethods.end(),
                     [&](const Method& method) { return method.name == name; });
}

bool HasMethod(const Value& object, std::string_view name) {
  return MethodOrNull(object, name) != nullptr;
}

Value CallMethod(const Value& object, std::string_view name, const CallArguments& arguments,
                 Budget* budget) {
  budget->Step();
  if (object.is_string()) budget->Bytes(object.AsText().size());
  const Method* method = MethodOrNull(object, name);
  if (method == nullptr) {
    throw TemplateError("a value of type " + std::string(TypeName(object)) + " has no method '" +
                        std::string(name) + "'");
  }
  return method->apply({object, name, arguments, budget});
}

}  // namespace refrain::engine::jinja
