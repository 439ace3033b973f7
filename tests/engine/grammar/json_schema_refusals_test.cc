// Schemas that no grammar is made of, and what clients are told.

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/schema_grammar.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::MakeSchemaGrammar;
using refrain::testing::SchemaRefusal;

struct Case {
  const char* schema;
  const char* refusal;
};

TEST(JsonSchemaRefusalsTest, KeywordsThatAreNotHeldAreNamed) {
  for (
      const auto& [schema, refusal] : {
          Case{R"({"uniqueItems": true, "type": "array"})", "/uniqueItems is not supported"},
          {R"({"properties": {"a/b": {"contains": {}, "type": "array"}}})",
           "/properties/a~1b/contains is not supported"},
          {R"({"if": {"type": "null"}, "then": true})", "/if is not supported"},
          {R"({"not": {"type": "null"}})", "/not is not supported"},
          {R"({"formatMinimum": "2024-01-01", "type": "string"})",
           "/formatMinimum is not supported"},
          {R"({"type": "object", "dependentRequired": {"a": ["b"]}})",
           "/dependentRequired is not supported"},
          {R"({"type": "object", "minProperties": 2})", "/minProperties is not supported"},
          {R"({"type": "object", "maxProperties": 2})", "/maxProperties is not supported"},
          {R"({"properties": {"a": true}, "patternProperties": {"^x": true}})",
           "/patternProperties is not supported"},
          {R"({"properties": {"a": true}, "unevaluatedProperties": {"type": "null"}})",
           "/unevaluatedProperties is not supported"},
          {R"({"properties": {"a": true}, "propertyNames": {"maxLength": 3}})",
           "/propertyNames is not supported but for a list of names, or where no property is named "
           "otherwise"},
          {R"({"patternProperties": {"^x": {}}, "propertyNames": {"enum": ["x"]}})",
           "/propertyNames is not supported but for a list of names, or where no property is named "
           "otherwise"},
          {R"({"$dynamicRef": "#a"})", "/$dynamicRef is not supported"},
          {R"({"properties": {"a": {"$id": "b", "type": "null"}}})",
           "/properties/a/$id is not supported"},
          {R"({"allOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"})",
           "/allOf/1/multipleOf is not supported"},
          {R"({"allOf": [{"$ref": "#/$defs/a", "nullable": true}, {"type": "null"}],
                "$defs": {"a": {}}})",
           "/allOf/0/nullable is not supported"},
          {R"({"anyOf": [{"type": "null"}, {"type": "array", "contains": true}]})",
           "/anyOf/1/contains is not supported"},
      }) {
    EXPECT_EQ(SchemaRefusal(schema), refusal) << schema;
  }
}

// Where a schema need not hold as a whole.
TEST(JsonSchemaRefusalsTest, WhatIsNotHeldIsLeftOutOnRequest) {
  struct LooseCase {
    const char* schema;
    const char* allowed;      // though the schema may say otherwise
    const char* not_allowed;  // by what is held
  };
  for (const auto& [schema, allowed, not_allowed] : {
           LooseCase{R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})",
                     "[1,1]", "[true]"},
           {R"({"type": "array", "contains": {"const": 2}, "maxItems": 1})", "[1]", "[1,2]"},
           {R"({"if": {"type": "null"}, "then": true, "type": "integer"})", "1", "true"},
           {R"({"not": {"const": 1}, "type": "integer"})", "1", "true"},
           {R"({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 2})",
            R"({"a":null})", "{}"},
           {R"({"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 1})",
            R"({"a":null,"b":null})", R"({"a":1})"},
           {R"({"properties": {"a": {"type": "null"}}, "dependentRequired": {"a": ["b"]}})",
            R"({"a":null})", R"({"a":1})"},
           {R"({"properties": {"a": {"type": "null"}}, "propertyNames": {"maxLength": 0}})",
            R"({"a":null})", R"({"b":null})"},
           {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "1", "true"},
           {R"({"type": "string", "pattern": "^\\p{L}$", "maxLength": 2})", R"("12")", R"("123")"},
           {R"({"type": "object", "propertyNames": {"enum": ["a"]},
                "additionalProperties": {"type": "null"}, "dependentRequired": {}})",
            R"({"a":null})", R"({"b":null})"},
           {R"({"patternProperties": {"^a": {"type": "null"}, "^b": {"type": "string"}}})",
            R"({"a":null,"b":"x"})", "[]"},
           {R"({"properties": {"i": {"type": "null"}}, "patternProperties": {"^x": {}},
                "additionalProperties": false})",
            R"({"i":null,"x":1})", R"({"i":1})"},
           {R"({"type": "string", "allOf": [{"pattern": "^[a-z]+$"}, {"pattern": "\\p{L}"}]})",
            R"("ab")", R"("A")"},
           {R"({"enum": [1, "a"], "uniqueItems": true, "$dynamicRef": "#a"})", R"("a")", "2"},
       }) {
    const absl::StatusOr<Grammar> grammar = MakeSchemaGrammar(schema, SchemaHold::kWhatItCan);
    ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.status();
    EXPECT_TRUE(Accepts(*grammar, allowed)) << schema;
    EXPECT_FALSE(Accepts(*grammar, not_allowed)) << schema;
    const bool is_refused = !SchemaRefusal(schema).empty();
    EXPECT_TRUE(is_refused) << schema;
  }
  for (const char* const schema : {R"({"type": "str"})", R"({"$ref": "#/nowhere"})", "false"}) {
    EXPECT_FALSE(MakeSchemaGrammar(schema, SchemaHold::kWhatItCan).ok()) << schema;
  }
}

TEST(JsonSchemaRefusalsTest, SchemasThatAreNoneAreNamed) {
  for (const auto& [schema, refusal] : {
           Case{"[", "the schema is not valid JSON: ends too early, after 1 bytes"},
           {"5", "the schema is no schema: neither an object nor a boolean"},
           {R"({"properties": {"a": "string"}})",
            "/properties/a is no schema: neither an object nor a boolean"},
           {R"({"type": "int"})",
            "/type is \"int\"; the types are null, boolean, object, array, string, integer and "
            "number"},
           {R"({"type": ["string", 5]})", "/type/1 is not the name of a type"},
           {R"({"properties": []})", "/properties is not an object"},
           {R"({"required": "a"})", "/required is not an array"},
           {R"({"required": [1]})", "/required/0 is not a string"},
           {R"({"minItems": -1})", "/minItems is not a non-negative integer"},
           {R"({"maxLength": 1.5})", "/maxLength is not a non-negative integer"},
           {R"({"minimum": "3"})", "/minimum is not a number"},
           {R"({"multipleOf": 0})", "/multipleOf is not greater than 0"},
           {R"({"enum": "a"})", "/enum is not an array"},
           {R"({"anyOf": []})", "/anyOf is not an array of schemas"},
           {R"({"allOf": {}})", "/allOf is not an array of schemas"},
           {R"({"pattern": 5})", "/pattern is not a string"},
           {R"({"nullable": 1})", "/nullable is not a boolean"},
           {R"({"uniqueItems": 1})", "/uniqueItems is not a boolean"},
           {R"({"$ref": 5})", "/$ref is not a string"},
           {R"({"prefixItems": {}})", "/prefixItems is not an array"},
       }) {
    EXPECT_EQ(SchemaRefusal(schema), refusal) << schema;
  }
}

TEST(JsonSchemaRefusalsTest, WhatNothingSatisfiesIsNamed) {
  for (const auto& [schema, refusal] : {
           Case{"false", "the schema allows nothing"},
           {R"({"type": "string", "enum": [1, 2]})", "the schema allows none of its values"},
           {R"({"properties": {"a": {"enum": []}}})", "/properties/a allows none of its values"},
           {R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
            "the schema allows no type of value"},
           {R"({"type": "integer", "minimum": 2, "maximum": 1})",
            "the schema allows no number that can be written"},
           {R"({"minLength": 3, "maxLength": 2})",
            "the schema allows no string: its minLength is over its maxLength"},
           {R"({"pattern": "^a$", "minLength": 2})",
            "the schema allows no string: no length that is left fits its pattern"},
           {R"({"minItems": 3, "maxItems": 2})", "the schema allows no number of items"},
           {R"({"minItems": 1, "items": false})", "the schema allows no number of items"},
           {R"({"required": ["b"], "properties": {"a": true}, "additionalProperties": false})",
            "the schema requires the property \"b\", which may not be there"},
           {R"({"required": ["a"], "properties": {"a": false}})",
            "the schema requires the property \"a\", which may not be there"},
           {R"({"required": ["a"], "properties": {"a": true}, "propertyNames": {"const": "b"}})",
            "the schema requires the property \"a\", which may not be there"},
           {R"({"minProperties": 1, "additionalProperties": false})",
            "the schema allows no number of properties"},
           {R"({"anyOf": [false, {"not": {}}]})", "/anyOf has no alternative that allows anything"},
           {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
            "grammar can never be satisfied: no text is of its language"},
       }) {
    EXPECT_EQ(SchemaRefusal(schema), refusal) << schema;
  }
}

TEST(JsonSchemaRefusalsTest, ReferencesThatLeadNowhereAreNamed) {
  for (const auto& [schema, refusal] : {
           Case{R"({"$ref": "#/$defs/a"})", "/$ref names \"#/$defs/a\", which is not there"},
           {R"({"items": {"$ref": "#/items/9"}})",
            "/items/$ref names \"#/items/9\", which is not there"},
           {R"({"$ref": "https://example.com/a.json"})",
            "/$ref names \"https://example.com/a.json\", but only places of the schema itself "
            "(#/...) "
            "are supported"},
           {R"({"$ref": "#a"})",
            "/$ref names \"#a\", but only places of the schema itself (#/...) are supported"},
           {R"({"$ref": "#/title", "title": "a"})",
            "/title is no schema: neither an object nor a boolean"},
       }) {
    EXPECT_EQ(SchemaRefusal(schema), refusal) << schema;
  }
}

// Nothing would ever be read.
TEST(JsonSchemaRefusalsTest, SchemasThatComeBackToThemselvesAreNamed) {
  for (const auto& [schema, place] : {
           Case{R"({"$ref": "#"})", "the schema"},
           {R"({"items": {"$ref": "#/items"}})", "/items"},
           {R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "$ref": "#/$defs/a"})",
            "the schema"},
           {R"({"type": "null", "allOf": [{"$ref": "#"}]})", "the schema"},
           {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "the schema"},
           {R"({"type": "object", "anyOf": [{"$ref": "#"}, {"required": ["a"]}]})", "the schema"},
           {R"({"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]},
                          "b": {"anyOf": [{"type": "array"}, {"$ref": "#/$defs/a"}]}},
                "items": {"$ref": "#/$defs/a"}})",
            "/$defs/a"},
       }) {
    const std::string refusal = SchemaRefusal(schema);
    EXPECT_TRUE(refusal ==
                    std::string(place) + " leads back to itself before it describes anything" ||
                refusal == std::string(place) +
                               " leads through more than 64 other schemas, or back to itself")
        << schema << "\n"
        << refusal;
  }
}

TEST(JsonSchemaRefusalsTest, AlternativesThatCannotBeToldApartAreNamed) {
  const std::string end =
      " that cannot be told apart: they need different types, or a property with different "
      "constants "
      "(or anyOf)";
  for (const auto& [schema, alternatives] : {
           Case{R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "0 and 1"},
           {R"({"oneOf": [{"type": "null"}, {"type": "string"}, {"type": ["string", "array"]}]})",
            "1 and 2"},
           {R"({"oneOf": [{"const": 1}, {"const": 2}, {"enum": [3, 1.0]}]})", "0 and 2"},
           // A string has no properties that could be wrong.
           {R"({"oneOf": [{"type": "string"}, {"properties": {"a": true}}]})", "0 and 1"},
           {R"({"oneOf": [{"properties": {"a": true}}, {"properties": {"b": true}}]})", "0 and 1"},
           {R"({"oneOf": [{"properties": {"k": {"enum": [1, 2]}}},
                          {"properties": {"k": {"enum": [2, 3]}}}]})",
            "0 and 1"},
       }) {
    EXPECT_EQ(SchemaRefusal(schema), "/oneOf has alternatives " + std::string(alternatives) + end)
        << schema;
  }
}

TEST(JsonSchemaRefusalsTest, ConstantsThatTheOtherKeywordsDoNotTellAreNamed) {
  const auto refusal = [](std::string_view what) {
    return "/enum/0 is " + std::string(what) + " beside enum or const: that is not supported";
  };
  EXPECT_EQ(SchemaRefusal(R"({"enum": ["a"], "pattern": "a"})"),
            refusal("a string with a pattern"));
  EXPECT_EQ(SchemaRefusal(R"({"enum": [[1]], "items": {"type": "integer"}})"),
            refusal("an array with its items"));
  EXPECT_EQ(SchemaRefusal(R"({"enum": [{"a": 1}], "required": ["a"]})"),
            refusal("an object with its properties"));
  EXPECT_EQ(SchemaRefusal(R"({"enum": [1e18], "multipleOf": 1e18})"),
            refusal("a number with a multipleOf of over 18 digits"));
}

TEST(JsonSchemaRefusalsTest, PatternsThatAreNotUnderstoodAreNamed) {
  EXPECT_EQ(SchemaRefusal(R"({"properties": {"a": {"pattern": "a\\p{L}"}}})"),
            "/properties/a/pattern, at byte 1: a Unicode property is not supported");
  const std::string in_part = SchemaRefusal(R"j({"pattern": "^(?!\\p{L})a"})j");
  EXPECT_EQ(in_part.substr(0, in_part.find(", at")), R"j(/pattern, its part "^(?:\\p{L})")j");
}

}  // namespace
}  // namespace refrain::engine
