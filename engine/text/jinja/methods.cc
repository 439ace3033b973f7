#include "engine/text/jinja/methods.h"

#include <algorithm>
#include <array>
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
  return Value::String(unwanted.has_value() ? Strip(call.text(), side, *unwanted, call.budget)
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

// The part of a string that `start` and `end` of startswith, find and count leave.
struct Window {
  std::string_view text;
  size_t begin_byte = 0;   // of `text`
  bool is_beyond = false;  // it begins behind the end, where not even "" is found
};

Window WindowOf(const Call& call, const std::optional<Value>& start,
                const std::optional<Value>& end) {
  const std::string& text = call.text().bytes();
  const auto given = [](const std::optional<Value>& bound) {
    return bound.has_value() && !bound->is_none();
  };
  if (!given(start) && !given(end)) return {.text = text};
  const std::vector<size_t> offsets = CharacterOffsets(text);
  const int64_t size = static_cast<int64_t>(offsets.size()) - 1;
  const auto place = [&](const std::optional<Value>& bound, int64_t fallback) {
    if (!given(bound)) return fallback;
    const int64_t at = IntegerArgument(call, bound, 0);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t first = place(start, 0);
  const int64_t last = std::min(place(end, size), size);
  if (first > last) return {.text = "", .is_beyond = true};
  return {.text = std::string_view(text).substr(offsets[first], offsets[last] - offsets[first]),
          .begin_byte = offsets[first]};
}

// startswith and endswith: a string or a tuple of strings.
Value AffixMethod(const Call& call) {
  const auto bound = call.Bind({"affix", "start", "end"});
  Value::List affixes;
  if (bound[0].has_value() && bound[0]->is_tuple()) {
    affixes = ToList(*bound[0], call.budget);
  } else if (bound[0].has_value()) {
    affixes.push_back(*bound[0]);
  }
  if (affixes.empty() && !bound[0].has_value()) FailArgument(call, "a string");
  const auto [text, begin_byte, is_beyond] = WindowOf(call, bound[1], bound[2]);
  for (const Value& affix : affixes) {
    const std::string& wanted = TextArgument(call, affix).bytes();
    if (is_beyond) continue;
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
  const Text& given = TextArgument(call, bound[1]);
  const Text escaped = call.text().is_html() ? EscapeHtml(given, call.budget) : Text();
  return Value::String(ReplaceText(call.text(), TextArgument(call, bound[0]).bytes(),
                                   call.text().is_html() ? escaped : given,
                                   IntegerArgument(call, bound[2], -1), call.budget));
}

Value JoinMethod(const Call& call) {
  const auto bound = call.Bind({"iterable"});
  if (!bound[0].has_value()) FailArgument(call, "a list");
  Value::List items = ToList(*bound[0], call.budget);
  for (Value& item : items) {
    // HTML takes what is no string, too.
    if (call.text().is_html()) {
      item = Value::String(EscapeHtml(ToText(item, call.budget), call.budget));
    } else if (!item.is_string()) {
      FailArgument(call, "strings");
    }
  }
  return ApplyFilter("join", Value::MakeList(std::move(items)), CallArguments{{call.object}, {}},
                     call.budget);
}

Value FormatMethod(const Call& call) {
  return Value::String(FormatFields(call.text(), call.arguments, call.budget));
}

Value ZeroFillMethod(const Call& call) {
  const auto bound = call.Bind({"width"});
  if (!bound[0].has_value()) FailArgument(call, "a width");
  return Value::String(ZeroFill(call.text(), IntegerArgument(call, bound[0], 0), call.budget));
}

// In characters, -1 where there is none.
Value FindMethod(const Call& call) {
  const auto bound = call.Bind({"sub", "start", "end"});
  const std::string& wanted = TextArgument(call, bound[0]).bytes();
  const auto [text, begin_byte, is_beyond] = WindowOf(call, bound[1], bound[2]);
  if (call.name == "count") {
    if (is_beyond) return Value::Int(0);
    if (wanted.empty()) return Value::Int(static_cast<int64_t>(CountCharacters(text)) + 1);
    const Value::List parts = SplitText(call.text().Substr(begin_byte, text.size()), wanted, -1,
                                        /*from_right=*/false, call.budget);
    return Value::Int(static_cast<int64_t>(parts.size()) - 1);
  }
  const size_t at = is_beyond ? std::string_view::npos
                              : FindText(text, wanted, /*from_right=*/call.name == "rfind");
  if (at == std::string_view::npos) {
    if (call.name == "index") throw TemplateError("index(): substring not found");
    return Value::Int(-1);
  }
  const std::string_view before = std::string_view(call.text().bytes()).substr(0, begin_byte + at);
  return Value::Int(static_cast<int64_t>(CountCharacters(before)));
}

Value IsMethod(const Call& call) {
  call.Bind({});
  const std::string& text = call.text().bytes();
  if (call.name == "isupper") return Value::Bool(IsUpper(text));
  if (call.name == "islower") return Value::Bool(IsLower(text));
  if (call.name == "isspace") {
    return Value::Bool(!text.empty() && Strip(call.text(), Side::kBoth).size() == 0);
  }
  if (call.name == "isalpha") return Value::Bool(AllCharacters(text, IsAlpha));
  if (call.name == "isalnum") return Value::Bool(AllCharacters(text, IsAlnum));
  if (call.name == "isdecimal") return Value::Bool(AllCharacters(text, IsDecimal));
  if (call.name == "isdigit") return Value::Bool(AllCharacters(text, IsDigit));
  return Value::Bool(AllCharacters(text, IsNumeric));
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
  call.budget->Key(*bound[0]);
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

constexpr std::array<Method, 36> kMethods = {{
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
    {kString, "format", FormatMethod},
    {kString, "zfill", ZeroFillMethod},
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
  Value made = method->apply({object, name, arguments, budget});
  return object.is_string() ? HtmlLike(object.AsText(), std::move(made), budget) : made;
}

}  // namespace refrain::engine::jinja
