#include "engine/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <functional>

namespace refrain::engine {
namespace {

using enum SchemaKeyword;

struct Entry {
  std::string_view name;
  SchemaKeyword keyword;
  TypeSet applies_to = TypeSet::All();
};

constexpr TypeSet kObject = TypeSet::Object();
constexpr TypeSet kArray = TypeSet::Array();
constexpr TypeSet kString = TypeSet::String();
constexpr TypeSet kNumber = TypeSet::Number();

// By name.
constexpr Entry kEntries[] = {
    {"$anchor", kAnnotation},
    {"$comment", kAnnotation},
    {"$defs", kAnnotation},
    {"$dynamicAnchor", kAnnotation},
    {"$dynamicRef", kUnsupported},
    {"$id", kId},
    {"$recursiveAnchor", kAnnotation},
    {"$recursiveRef", kUnsupported},
    {"$ref", kRef},
    {"$schema", kAnnotation},
    {"$vocabulary", kAnnotation},
    {"additionalItems", kAdditionalItems, kArray},
    {"additionalProperties", kAdditionalProperties, kObject},
    {"allOf", kAllOf},
    {"anyOf", kAnyOf},
    {"const", kConst},
    {"contains", kUnsupported, kArray},
    {"contentEncoding", kAnnotation},
    {"contentMediaType", kAnnotation},
    {"contentSchema", kAnnotation},
    {"default", kAnnotation},
    {"definitions", kAnnotation},
    {"dependencies", kUnsupported, kObject},
    {"dependentRequired", kUnsupported, kObject},
    {"dependentSchemas", kUnsupported, kObject},
    {"deprecated", kAnnotation},
    {"description", kAnnotation},
    {"disallow", kUnsupported},
    {"discriminator", kAnnotation},
    {"divisibleBy", kUnsupported, kNumber},
    {"else", kAnnotation},  // of `if`
    {"enum", kEnum},
    {"example", kAnnotation},
    {"examples", kAnnotation},
    {"exclusiveMaximum", kExclusiveMaximum, kNumber},
    {"exclusiveMinimum", kExclusiveMinimum, kNumber},
    {"extends", kUnsupported},
    {"externalDocs", kAnnotation},
    {"format", kFormat, kString},
    {"formatExclusiveMaximum", kUnsupported, kString},
    {"formatExclusiveMinimum", kUnsupported, kString},
    {"formatMaximum", kUnsupported, kString},
    {"formatMinimum", kUnsupported, kString},
    {"id", kAnnotation},
    {"if", kUnsupported},
    {"items", kItems, kArray},
    {"markdownDescription", kAnnotation},
    {"maxContains", kAnnotation},  // of `contains`
    {"maxItems", kMaxItems, kArray},
    {"maxLength", kMaxLength, kString},
    {"maxProperties", kMaxProperties, kObject},
    {"maximum", kMaximum, kNumber},
    {"minContains", kAnnotation},  // of `contains`
    {"minItems", kMinItems, kArray},
    {"minLength", kMinLength, kString},
    {"minProperties", kMinProperties, kObject},
    {"minimum", kMinimum, kNumber},
    {"multipleOf", kMultipleOf, kNumber},
    {"not", kNot},
    {"nullable", kNullable},
    {"oneOf", kOneOf},
    {"pattern", kPattern, kString},
    {"patternProperties", kPatternProperties, kObject},
    {"prefixItems", kPrefixItems, kArray},
    {"properties", kProperties, kObject},
    {"propertyNames", kPropertyNames, kObject},
    {"propertyOrdering", kAnnotation},
    {"readOnly", kAnnotation},
    {"required", kRequired, kObject},
    {"then", kAnnotation},  // of `if`
    {"title", kAnnotation},
    {"type", kType},
    {"unevaluatedItems", kUnevaluatedItems, kArray},
    {"unevaluatedProperties", kUnevaluatedProperties, kObject},
    {"uniqueItems", kUniqueItems, kArray},
    {"writeOnly", kAnnotation},
    {"xml", kAnnotation},
};
static_assert(std::ranges::is_sorted(kEntries, std::less<>(), &Entry::name));

}  // namespace

std::optional<TypeSet> TypeSet::Named(std::string_view name) {
  struct Type {
    std::string_view name;
    TypeSet types;
  };
  static constexpr std::array<Type, 7> kTypes = {{{"null", Null()},
                                                  {"boolean", Boolean()},
                                                  {"object", Object()},
                                                  {"array", Array()},
                                                  {"string", String()},
                                                  {"integer", Integer()},
                                                  {"number", Number()}}};
  for (const Type& type : kTypes) {
    if (type.name == name) return type.types;
  }
  return std::nullopt;
}

KeywordMeaning MeaningOfKeyword(std::string_view name) {
  const auto* found = std::ranges::lower_bound(kEntries, name, std::less<>(), &Entry::name);
  if (found == std::end(kEntries) || found->name != name) return {kAnnotation, TypeSet::All()};
  return {found->keyword, found->applies_to};
}

}  // namespace refrain::engine
