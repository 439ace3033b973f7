#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_VALUE_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace refrain::engine {

// A value of a JSON text, with numbers as they are written and members in their order. A schema is
// one, and so is a value of its `enum`.
struct SchemaValue {
  struct Member;
  enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

  bool is(Kind k) const { return kind == k; }
  bool is_true() const { return kind == Kind::kBoolean && boolean; }
  bool is_false() const { return kind == Kind::kBoolean && !boolean; }
  // Linear in the number of members.
  const SchemaValue* FindOrNull(std::string_view name) const;

  Kind kind = Kind::kNull;
  bool boolean = false;
  const SchemaValue* parent = nullptr;  // null: the root
  std::string text;                     // of a string what it says, of a number its JSON
  std::vector<SchemaValue> items;       // of an array
  std::vector<Member> members;          // of an object; no name occurs twice
};

struct SchemaValue::Member {
  std::string name;
  SchemaValue value;
};

// Parses a schema that may be anybody's; linear in its size. The root stays where it is.
// INVALID_ARGUMENT, as soon as that is seen: what is no JSON, nesting over 64, a key that occurs
// twice in an object, a number whose exponent is over 400, values that would take over 64 MiB of
// memory. Pure; any thread.
absl::StatusOr<std::unique_ptr<const SchemaValue>> ParseSchema(std::string_view text);

// Where a value stands, as a JSON pointer (RFC 6901), its middle left out where it is very long.
std::string PointerTo(const SchemaValue& value);
// INVALID_ARGUMENT: "/properties/age/minimum is not a number"; of the root, "the schema is ...".
absl::Status SchemaError(const SchemaValue& place, std::string_view what);

// A value as JSON without spaces, its strings unescaped but where JSON wants it.
std::string JsonText(const SchemaValue& value);
// Equal values, as JSON Schema compares them, have equal ones.
std::string ComparableText(const SchemaValue& value);
// A string as JSON, with its quotes.
std::string JsonString(std::string_view text);
// The same for messages: of a long one its two ends.
std::string ShownString(std::string_view text);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_VALUE_H_
