#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_KEYWORDS_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_KEYWORDS_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace refrain::engine {

// The types of JSON Schema, as a set. A number is an integer or has a fraction.
class TypeSet {
 public:
  constexpr TypeSet() = default;

  static constexpr TypeSet Null() { return TypeSet(1); }
  static constexpr TypeSet Boolean() { return TypeSet(2); }
  static constexpr TypeSet Object() { return TypeSet(4); }
  static constexpr TypeSet Array() { return TypeSet(8); }
  static constexpr TypeSet String() { return TypeSet(16); }
  static constexpr TypeSet Integer() { return TypeSet(32); }
  static constexpr TypeSet Fraction() { return TypeSet(64); }
  static constexpr TypeSet Number() { return Integer() | Fraction(); }
  static constexpr TypeSet All() { return TypeSet(127); }
  // By the name that `type` has for it.
  static std::optional<TypeSet> Named(std::string_view name);

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool Overlaps(TypeSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr TypeSet operator&(TypeSet other) const { return TypeSet(bits_ & other.bits_); }
  constexpr TypeSet operator|(TypeSet other) const { return TypeSet(bits_ | other.bits_); }
  friend constexpr bool operator==(TypeSet a, TypeSet b) = default;

 private:
  constexpr explicit TypeSet(unsigned bits) : bits_(static_cast<uint8_t>(bits)) {}

  uint8_t bits_ = 0;
};

enum class SchemaKeyword : uint8_t {
  kType,
  kNullable,
  kEnum,
  kConst,
  kRef,
  kAllOf,
  kAnyOf,
  kOneOf,
  kNot,
  kMinimum,
  kMaximum,
  kExclusiveMinimum,
  kExclusiveMaximum,
  kMultipleOf,
  kMinLength,
  kMaxLength,
  kPattern,
  kFormat,
  kItems,
  kPrefixItems,
  kAdditionalItems,
  kMinItems,
  kMaxItems,
  kUniqueItems,
  kUnevaluatedItems,
  kProperties,
  kRequired,
  kAdditionalProperties,
  kPatternProperties,
  kPropertyNames,
  kMinProperties,
  kMaxProperties,
  kUnevaluatedProperties,
  kId,
  kAnnotation,   // says nothing about values, or nothing by itself; and any that is not known
  kUnsupported,  // of some draft, or of ajv
};
inline constexpr int kNumSchemaKeywords = static_cast<int>(SchemaKeyword::kUnsupported) + 1;

struct KeywordMeaning {
  SchemaKeyword keyword;
  TypeSet applies_to;  // values of other types are not held to it
};

// What JSON Schema does not know is an annotation (2020-12, core, section 6.5): libraries have
// many.
KeywordMeaning MeaningOfKeyword(std::string_view name);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_KEYWORDS_H_
