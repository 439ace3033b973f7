#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/batches.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/filter_call.h"
#include "engine/text/jinja/number_filters.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/string_functions.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/jinja/value_tests.h"

namespace refrain::engine::jinja {
namespace {

// `a.b.0` of an element, as map and selectattr have it; `fallback`, which may be null, stands for
// each part that is undefined.
Value AttributeOf(const Value& object, const std::string& path, const Value* fallback,
                  Budget* budget) {
  Value value = object;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    budget->Step();
    budget->Bytes(2 * (end - begin));
    const std::string part = path.substr(begin, end - begin);
    const bool is_index =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = ItemOf(value, is_index ? Value::Int(std::stoll(part)) : Value::String(part), budget);
    if (value.is_undefined() && fallback != nullptr) value = *fallback;
    begin = end + 1;
  }
  return value;
}

Value AttributeOf(const Value& object, const Value& path, Budget* budget,
                  const Value* fallback = nullptr) {
  if (path.is_string()) return AttributeOf(object, path.AsString(), fallback, budget);
  Value value = ItemOf(object, path, budget);
  return value.is_undefined() && fallback != nullptr ? *fallback : value;
}

// What a filter passes on to the filter or test that it applies.
CallArguments RestOf(const FilterCall& call, size_t from) {
  const auto& [all, named] = call.arguments;
  call.budget->List(all.size() - from + 3 * named.size());
  for (const auto& [name, value] : named) call.budget->Bytes(name.size());
  return {{all.begin() + static_cast<ptrdiff_t>(from), all.end()}, named};
}

Value Default(const FilterCall& call) {
  const auto bound = call.Bind({"default_value", "boolean"});
  const bool replace =
      call.input.is_undefined() || (FlagOr(bound[1], false) && !IsTrue(call.input));
  return replace ? bound[0].value_or(Value::String(std::string())) : call.input;
}

Value Length(const FilterCall& call) {
  call.Bind({});
  if (call.input.is_string()) call.budget->Bytes(call.input.AsText().size());
  const std::optional<size_t> length = LengthOrNull(call.input);
  if (!length.has_value()) {
    throw TemplateError("a value of type " + std::string(TypeName(call.input)) + " has no length");
  }
  return Value::Int(static_cast<int64_t>(*length));
}

Value First(const FilterCall& call) {
  call.Bind({});
  const Value::List items = call.InputList();
  return items.empty() ? Value::Undefined("first item of an empty sequence") : items.front();
}

Value Last(const FilterCall& call) {
  call.Bind({});
  const Value::List items = call.InputList();
  return items.empty() ? Value::Undefined("last item of an empty sequence") : items.back();
}

Value Join(const FilterCall& call) {
  const auto bound = call.Bind({"d", "attribute"});
  const Text separator = bound[0].has_value() ? call.ArgumentText(*bound[0]) : Text();
  Text out;
  bool is_first = true;
  for (const Value& item : call.InputList()) {
    const Value part = bound[1].has_value() ? AttributeOf(item, *bound[1], call.budget) : item;
    const Text text = ToText(part, call.budget);
    call.budget->Bytes(text.size() + separator.size());
    if (!std::exchange(is_first, false)) out.Append(separator);
    out.Append(text);
    if (out.size() > Budget::kMaxStringBytes) call.budget->String(out.size());
  }
  return Value::String(std::move(out));
}

Value Trim(const FilterCall& call) {
  const auto bound = call.Bind({"chars"});
  const Text text = call.InputText();
  if (!bound[0].has_value() || bound[0]->is_none()) return Value::String(Strip(text, Side::kBoth));
  return Value::String(Strip(text, Side::kBoth, StringArgument(call, bound[0]), call.budget));
}

Value ToJsonFilter(const FilterCall& call) {
  const auto bound = call.Bind({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = FlagOr(bound[0], false);
  style.sort_keys = FlagOr(bound[3], false);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    if (bound[1]->is_string()) {
      style.indent = StringArgument(call, bound[1]);
    } else {
      const int64_t width = std::clamp<int64_t>(IntegerArgument(call, bound[1], 0), 0, 64);
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    const bool is_pair = bound[2]->is_list() && bound[2]->AsList().size() == 2 &&
                         bound[2]->AsList()[0].is_string() && bound[2]->AsList()[1].is_string();
    if (!is_pair) throw TemplateError("tojson: separators are two strings");
    style.item_separator = StringArgument(call, bound[2]->AsList()[0]);
    style.key_separator = StringArgument(call, bound[2]->AsList()[1]);
  }
  return Value::String(ToJson(call.input, style, call.budget));
}

Value Items(const FilterCall& call) {
  call.Bind({});
  if (call.input.is_undefined()) return Value::MakeList({});
  if (!call.input.is_map()) throw TemplateError("filter 'items' needs a mapping");
  call.budget->List(2 * call.input.AsMap().size());
  Value::List items;
  for (const Map::Entry& entry : call.input.AsMap().entries()) {
    items.push_back(Value::MakeTuple({entry.key, entry.value}));
  }
  return call.budget->Depth(Value::MakeList(std::move(items)));
}

// Strings that are told apart without their case.
Value Folded(const FilterCall& call, const Value& key) {
  call.budget->Bytes(4 * key.AsText().size());
  return Value::String(ToLower(key.AsText()));
}

// One place of what things are sorted by.
Value SortKey(const FilterCall& call, const Value& item, const std::optional<Value>& attribute,
              bool case_sensitive) {
  Value key = attribute.has_value() && !attribute->is_none()
                  ? AttributeOf(item, *attribute, call.budget)
                  : item;
  if (!case_sensitive && key.is_string()) key = Folded(call, key);
  return key;
}

using Keyed = std::vector<std::pair<Value, Value>>;  // what to sort by, item

// With the direction in the comparison: equal items stay in order either way, as in Python.
void SortByKey(const FilterCall& call, bool reverse, Keyed* keyed) {
  std::stable_sort(keyed->begin(), keyed->end(), [&](const auto& a, const auto& b) {
    const int order = Compare(a.first, b.first, call.budget);
    return reverse ? order > 0 : order < 0;
  });
}

Value Sorted(const FilterCall& call, Keyed keyed, bool reverse) {
  SortByKey(call, reverse, &keyed);
  Value::List sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::MakeList(std::move(sorted));
}

Value SortedBy(const FilterCall& call, const Value::List& items,
               const std::optional<Value>& attribute, bool case_sensitive, bool reverse) {
  Keyed keyed;
  for (const Value& item : items) {
    keyed.emplace_back(SortKey(call, item, attribute, case_sensitive), item);
  }
  return Sorted(call, std::move(keyed), reverse);
}

// By a list of keys, one for each attribute between commas. Lists compare at the first place where
// they differ, so that equal keys without an order (none) do no harm.
Value Sort(const FilterCall& call) {
  const auto bound = call.Bind({"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = FlagOr(bound[1], false);
  std::vector<std::optional<Value>> attributes;
  if (bound[2].has_value() && bound[2]->is_string()) {
    for (Value& part : SplitText(bound[2]->AsText(), ",", -1, /*from_right=*/false, call.budget)) {
      attributes.emplace_back(std::move(part));
    }
  } else {
    attributes.push_back(bound[2]);
  }
  Keyed keyed;
  for (const Value& item : call.InputList()) {
    Value::List keys;
    for (const std::optional<Value>& attribute : attributes) {
      keys.push_back(SortKey(call, item, attribute, case_sensitive));
    }
    keyed.emplace_back(Value::MakeList(std::move(keys)), item);
  }
  return Sorted(call, std::move(keyed), FlagOr(bound[0], false));
}

Value DictSort(const FilterCall& call) {
  const auto bound = call.Bind({"case_sensitive", "by", "reverse"});
  const bool by_value = bound[1].has_value() && StringArgument(call, bound[1]) == "value";
  if (!call.input.is_map()) throw TemplateError("filter 'dictsort' needs a mapping");
  const Value pairs = Items(FilterCall{call.name, call.input, CallArguments(), call.budget});
  return SortedBy(call, pairs.AsList(), Value::Int(by_value ? 1 : 0), FlagOr(bound[0], false),
                  FlagOr(bound[2], false));
}

// Lists of a key and the items that have it, in the order of the keys.
Value GroupBy(const FilterCall& call) {
  static constexpr std::string_view kNames[] = {"grouper", "list"};
  const auto bound = call.Bind({"attribute", "default", "case_sensitive"});
  if (!bound[0].has_value()) throw TemplateError("filter 'groupby' needs an attribute");
  const bool case_sensitive = FlagOr(bound[2], false);
  const Value* const fallback = bound[1].has_value() && !bound[1]->is_none() ? &*bound[1] : nullptr;
  const auto key_of = [&](const Value& item) {
    return bound[0]->is_none() ? item : AttributeOf(item, *bound[0], call.budget, fallback);
  };
  Keyed keyed;
  for (const Value& item : call.InputList()) {
    Value key = key_of(item);
    if (!case_sensitive && key.is_string()) key = Folded(call, key);
    keyed.emplace_back(std::move(key), item);
  }
  SortByKey(call, /*reverse=*/false, &keyed);
  Value::List groups;
  for (auto begin = keyed.begin(); begin != keyed.end();) {
    // One at least: NaN is not equal to itself.
    Value::List items = {begin->second};
    auto end = std::next(begin);
    for (; end != keyed.end() && Equal(begin->first, end->first, call.budget); ++end) {
      items.push_back(end->second);
    }
    // As the first item spells it.
    Value key = key_of(begin->second);
    call.budget->List(items.size() + 2);
    groups.push_back(
        Value::MakeNamedTuple({std::move(key), Value::MakeList(std::move(items))}, kNames));
    begin = end;
  }
  return call.budget->Depth(Value::MakeList(std::move(groups)));
}

Value Unique(const FilterCall& call) {
  const auto bound = call.Bind({"case_sensitive", "attribute"});
  Value::List keys, kept;
  for (const Value& item : call.InputList()) {
    Value key = bound[1].has_value() ? AttributeOf(item, *bound[1], call.budget) : item;
    if (!FlagOr(bound[0], false) && key.is_string()) key = Folded(call, key);
    const bool seen = std::any_of(keys.begin(), keys.end(), [&](const Value& other) {
      return Equal(other, key, call.budget);
    });
    if (seen) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

Value Extreme(const FilterCall& call) {
  const auto bound = call.Bind({"case_sensitive", "attribute"});
  const Value sorted = SortedBy(call, call.InputList(), bound[1], FlagOr(bound[0], false),
                                /*reverse=*/call.name == "max");
  return sorted.AsList().empty() ? Value::Undefined("extreme of an empty sequence")
                                 : sorted.AsList().front();
}

Value Sum(const FilterCall& call) {
  const auto bound = call.Bind({"attribute", "start"});
  Value sum = bound[1].value_or(Value::Int(0));
  for (const Value& item : call.InputList()) {
    const bool by_attribute = bound[0].has_value() && !bound[0]->is_none();
    sum = ApplyBinary(Operator::kAdd, sum,
                      by_attribute ? AttributeOf(item, *bound[0], call.budget) : item, call.budget);
  }
  return sum;
}

Value MapFilter(const FilterCall& call) {
  Value::List out;
  const auto& named = call.arguments.named;
  const auto attribute = std::find_if(named.begin(), named.end(),
                                      [](const auto& n) { return n.first == "attribute"; });
  if (attribute != named.end()) {
    const auto bound = call.Bind({"", "attribute", "default"});
    const Value* const fallback =
        bound[2].has_value() && !bound[2]->is_none() ? &*bound[2] : nullptr;
    for (const Value& item : call.InputListIfTrue()) {
      out.push_back(AttributeOf(item, *bound[1], call.budget, fallback));
    }
    return call.budget->Depth(Value::MakeList(std::move(out)));
  }
  if (call.arguments.positional.empty()) throw TemplateError("filter 'map' needs a filter");
  const std::string name = StringArgument(call, call.arguments.positional[0]);
  const CallArguments rest = RestOf(call, 1);
  for (const Value& item : call.InputListIfTrue()) {
    out.push_back(ApplyFilter(name, item, rest, call.budget));
  }
  return call.budget->Depth(Value::MakeList(std::move(out)));
}

// select, reject, selectattr, rejectattr.
Value Select(const FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr");
  const bool keeps = call.name.starts_with("select");
  const Value::List& given = call.arguments.positional;
  size_t next = 0;
  std::optional<Value> attribute;
  if (by_attribute) {
    if (given.empty()) {
      throw TemplateError("filter '" + std::string(call.name) + "' needs an attribute");
    }
    attribute = given[next++];
  }
  std::optional<std::string> test;
  if (next < given.size()) {
    test = StringArgument(call, given[next++]);
    if (!IsValueTest(*test)) throw TemplateError("test '" + *test + "' is not supported");
  }
  const CallArguments rest = RestOf(call, next);
  Value::List out;
  for (const Value& item : call.InputListIfTrue()) {
    const Value value = attribute.has_value() ? AttributeOf(item, *attribute, call.budget) : item;
    const bool passes =
        test.has_value() ? ApplyValueTest(*test, value, rest, call.budget) : IsTrue(value);
    if (passes == keeps) out.push_back(item);
  }
  return Value::MakeList(std::move(out));
}

Value Reverse(const FilterCall& call) {
  call.Bind({});
  Value::List items = call.InputList();
  std::reverse(items.begin(), items.end());
  if (!call.input.is_string()) return Value::MakeList(std::move(items));
  Text out;
  for (const Value& item : items) out.Append(item.AsText());
  return Value::String(std::move(out));
}

Value Replace(const FilterCall& call) {
  const auto bound = call.Bind({"old", "new", "count"});
  if (!bound[0].has_value() || !bound[1].has_value()) {
    throw TemplateError("filter 'replace' needs two strings");
  }
  return Value::String(ReplaceText(call.InputText(), call.ArgumentText(*bound[0]).bytes(),
                                   call.ArgumentText(*bound[1]),
                                   IntegerArgument(call, bound[2], -1), call.budget));
}

Value Indent(const FilterCall& call) {
  const auto bound = call.Bind({"width", "first", "blank"});
  Text indent;
  if (bound[0].has_value() && bound[0]->is_string()) {
    indent = call.ArgumentText(*bound[0]);
  } else {
    const int64_t width = std::clamp<int64_t>(IntegerArgument(call, bound[0], 4), 0, 1000);
    indent.Append(std::string(static_cast<size_t>(width), ' '));
  }
  if (!call.input.is_string()) {
    throw TemplateError("filter 'indent' needs a string, not " + std::string(TypeName(call.input)));
  }
  return Value::String(IndentText(call.InputText(), indent, FlagOr(bound[1], false),
                                  FlagOr(bound[2], false), call.budget));
}

Value Truncate(const FilterCall& call) {
  const auto bound = call.Bind({"length", "killwords", "end", "leeway"});
  if (call.input.is_undefined()) return Value::String("");
  if (!call.input.is_string()) {
    throw TemplateError("filter 'truncate' needs a string, not " +
                        std::string(TypeName(call.input)));
  }
  const Text end = bound[2].has_value() ? call.ArgumentText(*bound[2]) : Text("...");
  return Value::String(TruncateText(call.InputText(), IntegerArgument(call, bound[0], 255),
                                    FlagOr(bound[1], false), end,
                                    IntegerArgument(call, bound[3], 5), call.budget));
}

Value Format(const FilterCall& call) {
  const CallArguments& given = call.arguments;
  if (!given.positional.empty() && !given.named.empty()) {
    throw TemplateError("format: arguments with and without names");
  }
  Map names;
  for (const auto& [name, value] : given.named) {
    call.budget->Bytes(3 * name.size());  // again for each item of `map`
    names.Set(name, value);
  }
  const Value arguments =
      given.named.empty() ? Value::MakeTuple(given.positional) : Value::MakeMap(std::move(names));
  return Value::String(FormatPercent(call.InputText(), arguments, call.budget));
}

Value Batch(const FilterCall& call) {
  const auto bound = call.Bind({"linecount", "fill_with"});
  if (!bound[0].has_value()) throw TemplateError("filter 'batch' needs a size");
  const int64_t size = IntegerArgument(call, bound[0], 0);
  return call.budget->Depth(
      Value::MakeList(CutIntoBatches(call.InputList(), size, bound[1], call.budget)));
}

Value StringFilter(const FilterCall& call) {
  call.Bind({});
  const Text text = call.InputText();
  if (call.name == "upper") return Value::String(ToUpper(text));
  if (call.name == "lower") return Value::String(ToLower(text));
  if (call.name == "capitalize") return Value::String(Capitalize(text));
  if (call.name == "title") return Value::String(TitleWords(text));
  if (call.name == "e" || call.name == "escape") {
    return Value::String(EscapeHtml(text, call.budget));
  }
  if (call.name == "wordcount") {
    return Value::Int(static_cast<int64_t>(CountWords(text.bytes())));
  }
  return Value::String(text);  // string
}

Value Safe(const FilterCall& call) {
  call.Bind({});
  Text text = call.InputText();
  text.set_is_html(true);
  return Value::String(std::move(text));
}

Value ListFilter(const FilterCall& call) {
  call.Bind({});
  return Value::MakeList(call.InputList());
}

struct Filter {
  std::string_view name;
  Value (*apply)(const FilterCall& call);
  bool keeps_html = false;  // what it makes of HTML is HTML
};

constexpr bool kKeepsHtml = true;
constexpr std::array<Filter, 42> kFilters = {{
    {"abs", Absolute},
    {"batch", Batch},
    {"capitalize", StringFilter, kKeepsHtml},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"e", StringFilter},
    {"escape", StringFilter},
    {"first", First},
    {"float", ToFloat},
    {"format", Format},
    {"groupby", GroupBy},
    {"indent", Indent, kKeepsHtml},
    {"int", ToInteger},
    {"items", Items},
    {"join", Join},
    {"last", Last, kKeepsHtml},
    {"length", Length},
    {"list", ListFilter},
    {"lower", StringFilter, kKeepsHtml},
    {"map", MapFilter},
    {"max", Extreme},
    {"min", Extreme},
    {"reject", Select},
    {"rejectattr", Select},
    {"replace", Replace},
    {"reverse", Reverse, kKeepsHtml},
    {"round", Round},
    {"safe", Safe},
    {"select", Select},
    {"selectattr", Select},
    {"sort", Sort},
    {"string", StringFilter},
    {"sum", Sum},
    {"title", StringFilter},
    {"tojson", ToJsonFilter},
    {"trim", Trim, kKeepsHtml},
    {"truncate", Truncate},
    {"unique", Unique},
    {"upper", StringFilter, kKeepsHtml},
    {"wordcount", StringFilter},
}};

const Filter* FilterOrNull(std::string_view name) {
  const auto it = std::find_if(kFilters.begin(), kFilters.end(),
                               [&](const Filter& filter) { return filter.name == name; });
  return it == kFilters.end() ? nullptr : &*it;
}

}  // namespace

bool IsFilter(std::string_view name) { return FilterOrNull(name) != nullptr; }

Value ApplyFilter(std::string_view name, const Value& input, const CallArguments& arguments,
                  Budget* budget) {
  const Budget::Frame frame(budget);
  const Filter* filter = FilterOrNull(name);
  if (filter == nullptr) throw TemplateError("filter '" + std::string(name) + "' is not supported");
  Value made = filter->apply({name, input, arguments, budget});
  if (!filter->keeps_html || !input.is_string()) return made;
  return HtmlLike(input.AsText(), std::move(made), budget);
}

}  // namespace refrain::engine::jinja
