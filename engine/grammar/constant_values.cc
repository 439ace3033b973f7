#include "engine/grammar/constant_values.h"

#include "absl/strings/str_cat.h"
#include "engine/grammar/decimal.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

using Kind = SchemaValue::Kind;

absl::StatusOr<bool> IsAllowed(const SchemaValue& value, const SchemaFacts& facts) {
  if (!facts.types.Overlaps(TypeOf(value))) return false;
  for (const SchemaFacts::Unsupported& unsupported : facts.unsupported) {
    if (unsupported.applies_to.Overlaps(TypeOf(value))) {
      return SchemaError(*unsupported.place, "is not supported");
    }
  }
  const auto refuse = [&](std::string_view what) {
    return SchemaError(value, absl::StrCat("is ", std::string(what),
                                           " beside enum or const: that is not supported"));
  };
  if (value.is(Kind::kNumber)) {
    if (!facts.numbers.can_tell()) return refuse("a number with a multipleOf of over 18 digits");
    return facts.numbers.Holds(Decimal(value.text));
  }
  if (value.is(Kind::kString)) {
    const SchemaFacts::Strings& strings = facts.strings;
    if (!strings.patterns.empty()) return refuse("a string with a pattern");
    const size_t length = CountUtf8Characters(value.text);
    return length >= static_cast<size_t>(strings.min_length) &&
           (!strings.max_length || length <= static_cast<size_t>(*strings.max_length));
  }
  if (value.is(Kind::kArray) && !facts.arrays.is_any) return refuse("an array with its items");
  if (value.is(Kind::kObject) && !facts.objects.is_any) {
    return refuse("an object with its properties");
  }
  return true;
}

}  // namespace

TypeSet TypeOf(const SchemaValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return TypeSet::Null();
    case Kind::kBoolean:
      return TypeSet::Boolean();
    case Kind::kNumber:
      return Decimal(value.text).is_integer() ? TypeSet::Integer() : TypeSet::Fraction();
    case Kind::kString:
      return TypeSet::String();
    case Kind::kArray:
      return TypeSet::Array();
    case Kind::kObject:
      return TypeSet::Object();
  }
  return {};
}

absl::StatusOr<std::vector<const SchemaValue*>> AllowedValues(const SchemaFacts& facts) {
  std::vector<const SchemaValue*> allowed;
  for (const SchemaValue* value : *facts.values) {
    const absl::StatusOr<bool> is_allowed = IsAllowed(*value, facts);
    if (!is_allowed.ok()) return is_allowed.status();
    if (*is_allowed) allowed.push_back(value);
  }
  return allowed;
}

}  // namespace refrain::engine
