#include "engine/grammar/schema_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/grammar/decimal.h"
#include "engine/json_error_place.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;
using Kind = SchemaValue::Kind;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxMemoryBytes = size_t{64} << 20;
// Of a block of memory, beside what was asked for.
constexpr size_t kBlockBytes = 16;

constexpr size_t kShownBytes = 400;

// Of a long text its two ends, without halves of characters.
std::string Shown(std::string_view text) {
  if (text.size() <= kShownBytes) return std::string(text);
  const auto is_inside = [&](size_t at) { return (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80; };
  size_t head = kShownBytes / 2;
  while (is_inside(head)) --head;
  size_t tail = text.size() - kShownBytes / 2;
  while (is_inside(tail)) ++tail;
  return absl::StrCat(std::string(text.substr(0, head)), "...", std::string(text.substr(tail)));
}

SchemaValue Scalar(Kind kind, std::string text) {
  SchemaValue value;
  value.kind = kind;
  value.text = std::move(text);
  return value;
}

// Builds the tree from a parser's events, for as long as it is within the bounds.
class TreeBuilder {
 public:
  bool null() { return Add({}); }
  bool boolean(bool value) {
    SchemaValue added = Scalar(Kind::kBoolean, "");
    added.boolean = value;
    return Add(std::move(added));
  }
  bool number_integer(Json::number_integer_t value) {
    return Add(Scalar(Kind::kNumber, std::to_string(value)));
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    return Add(Scalar(Kind::kNumber, std::to_string(value)));
  }
  bool number_float(Json::number_float_t, const std::string& text) {
    if (ExponentOf(text) > Decimal::kMostExponent) {
      return Fail(absl::StrCat("holds a number with an exponent over ", Decimal::kMostExponent));
    }
    return Add(Scalar(Kind::kNumber, text));
  }
  bool string(std::string& text) { return Add(Scalar(Kind::kString, std::move(text))); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(Kind::kObject); }
  bool start_array(size_t) { return Open(Kind::kArray); }
  bool key(std::string& name) {
    name_ = std::move(name);
    return HasRoomFor(sizeof(std::string) + name_.size());
  }
  bool end_object() { return NamesAreUnique(*open_.back()) && Close(); }
  bool end_array() { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

  SchemaValue TakeTree() { return std::move(tree_); }
  // What is wrong beside the JSON; empty: nothing.
  const std::string& failure() const { return failure_; }

 private:
  // Of a JSON number, without its sign; large ones are cut.
  static int ExponentOf(const std::string& number) {
    const size_t e = number.find_first_of("eE");
    if (e == std::string::npos) return 0;
    int exponent = 0;
    for (const char digit : number.substr(e + 1)) {
      if (digit < '0') continue;  // the sign
      exponent = std::min(10 * exponent + (digit - '0'), 10 * Decimal::kMostExponent);
    }
    return exponent;
  }

  bool Fail(std::string what) {
    failure_ = std::move(what);
    return false;
  }

  bool HasRoomFor(size_t bytes) {
    memory_bytes_ += bytes;
    return memory_bytes_ <= kMaxMemoryBytes ||
           Fail(absl::StrCat("would take over ", kMaxMemoryBytes, " bytes of memory"));
  }

  SchemaValue* Place(SchemaValue value) {
    if (open_.empty()) {
      tree_ = std::move(value);
      return &tree_;
    }
    SchemaValue& parent = *open_.back();
    if (parent.is(Kind::kArray)) return &parent.items.emplace_back(std::move(value));
    return &parent.members.emplace_back(SchemaValue::Member{std::move(name_), std::move(value)})
                .value;
  }

  bool Add(SchemaValue value) {
    if (!HasRoomFor(sizeof(SchemaValue) + value.text.size() + kBlockBytes)) return false;
    Place(std::move(value));
    return true;
  }

  // Pointers in open_ stay valid: only the innermost open container grows.
  bool Open(Kind kind) {
    if (open_.size() >= kMaxDepth) return Fail(absl::StrCat("is nested deeper than ", kMaxDepth));
    if (!HasRoomFor(sizeof(SchemaValue) + kBlockBytes)) return false;
    open_.push_back(Place(Scalar(kind, "")));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // Sorted, for of a hash table somebody could choose names that all have one place.
  bool NamesAreUnique(const SchemaValue& object) {
    std::vector<std::string_view> names;
    names.reserve(object.members.size());
    for (const SchemaValue::Member& member : object.members) names.push_back(member.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return true;
    return Fail(absl::StrCat("has the key ", ShownString(*twice), " twice in one object"));
  }

  size_t memory_bytes_ = 0;
  SchemaValue tree_;
  std::vector<SchemaValue*> open_;
  std::string name_;  // that came last
  std::string failure_;
};

// As deep as the tree, which is bounded.
void SetParents(SchemaValue* value) {
  for (SchemaValue& item : value->items) {
    item.parent = value;
    SetParents(&item);
  }
  for (SchemaValue::Member& member : value->members) {
    member.value.parent = value;
    SetParents(&member.value);
  }
}

std::string EscapedToken(std::string_view name) {
  std::string token;
  for (const char c : name) {
    if (c == '~') {
      token += "~0";
    } else if (c == '/') {
      token += "~1";
    } else {
      token += c;
    }
  }
  return token;
}

// What leads from its parent to a value.
std::string TokenOf(const SchemaValue& value) {
  const SchemaValue& parent = *value.parent;
  if (parent.is(Kind::kArray)) return std::to_string(&value - parent.items.data());
  for (const SchemaValue::Member& member : parent.members) {
    if (&member.value == &value) return EscapedToken(member.name);
  }
  return "";
}

void AppendJson(const SchemaValue& value, bool comparable, std::string* out) {
  switch (value.kind) {
    case Kind::kNull:
      *out += "null";
      return;
    case Kind::kBoolean:
      *out += value.boolean ? "true" : "false";
      return;
    case Kind::kNumber:
      *out += comparable ? Decimal(value.text).ToString() : value.text;
      return;
    case Kind::kString:
      *out += JsonString(value.text);
      return;
    case Kind::kArray:
      for (const SchemaValue& item : value.items) {
        *out += &item == value.items.data() ? "[" : ",";
        AppendJson(item, comparable, out);
      }
      *out += value.items.empty() ? "[]" : "]";
      return;
    case Kind::kObject: {
      std::vector<const SchemaValue::Member*> members;
      for (const SchemaValue::Member& member : value.members) members.push_back(&member);
      if (comparable) {
        std::sort(members.begin(), members.end(),
                  [](auto* a, auto* b) { return a->name < b->name; });
      }
      *out += '{';
      for (size_t i = 0; i < members.size(); ++i) {
        if (i > 0) *out += ',';
        *out += JsonString(members[i]->name) + ":";
        AppendJson(members[i]->value, comparable, out);
      }
      *out += '}';
      return;
    }
  }
}

}  // namespace

const SchemaValue* SchemaValue::FindOrNull(std::string_view name) const {
  for (const Member& member : members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<const SchemaValue>> ParseSchema(std::string_view text) {
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("the schema ", what));
  };
  TreeBuilder builder;
  // The parser takes it for the end, and would not look at what is behind.
  const bool has_nul = text.find('\0') != std::string_view::npos;
  const bool parsed = !has_nul && Json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.failure().empty()) return refuse(builder.failure());
  if (!parsed) return refuse(absl::StrCat("is not valid JSON: ", JsonErrorPlace(text)));
  auto root = std::make_unique<SchemaValue>(builder.TakeTree());
  SetParents(root.get());
  return root;
}

std::string PointerTo(const SchemaValue& value) {
  std::vector<std::string> tokens;
  for (const SchemaValue* at = &value; at->parent != nullptr; at = at->parent) {
    tokens.push_back(TokenOf(*at));
  }
  std::string pointer;
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) pointer += "/" + *token;
  return Shown(pointer);
}

absl::Status SchemaError(const SchemaValue& place, std::string_view what) {
  const std::string pointer = PointerTo(place);
  return absl::InvalidArgumentError(
      absl::StrCat(pointer.empty() ? "the schema" : pointer, " ", std::string(what)));
}

std::string JsonText(const SchemaValue& value) {
  std::string text;
  AppendJson(value, /*comparable=*/false, &text);
  return text;
}

std::string ComparableText(const SchemaValue& value) {
  std::string text;
  AppendJson(value, /*comparable=*/true, &text);
  return text;
}

std::string JsonString(std::string_view text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string ShownString(std::string_view text) { return JsonString(Shown(text)); }

}  // namespace refrain::engine
