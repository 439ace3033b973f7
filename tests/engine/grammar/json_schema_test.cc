// What the grammars of schemas take, and what not: values, arrays, alternatives and references.

#include "engine/grammar/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/grammar/schema_cases.h"

namespace refrain::engine {
namespace {

using refrain::testing::CheckSchemas;

TEST(JsonSchemaTest, TypesAreHeld) {
  CheckSchemas({
      {"true", {"1", "\"a\"", "{\"a\": [null]}"}, {"", "a"}},
      {"{}", {"1", "[]", "{}"}, {"[1,]"}},
      {R"({"type": "null"})", {"null"}, {"0", "\"null\""}},
      {R"({"type": "boolean"})", {"true", "false"}, {"null", "True"}},
      {R"({"type": "string"})", {R"("a\n\u00e9é")", "\"\""}, {"a", "\"", "\"a\" "}},
      {R"({"type": "integer"})", {"0", "-12"}, {"1.0", "1e3", "01", "\"1\""}},
      {R"({"type": "number"})", {"0", "-1.25", "1e3"}, {"1.", "null"}},
      {R"({"type": "object"})", {"{}", "{\"a\": {\"b\": 1}}"}, {"[]", "{\"a\"}"}},
      {R"({"type": "array"})", {"[]", "[1, [2]]"}, {"{}", "[1,]"}},
      {R"({"type": ["string", "null"]})", {"\"a\"", "null"}, {"1", "\"a\"null"}},
      {R"({"type": ["integer", "number"]})", {"1", "1.5"}, {"null"}},
      {R"({"type": "string", "nullable": true})", {"\"a\"", "null"}, {"1"}},
      {R"({"type": "string", "nullable": false})", {"\"a\""}, {"null"}},
      {R"({"anyOf": [{"type": "integer"}], "nullable": true})", {"1", "null"}, {"1.5"}},
      {R"({"type": ["integer", "boolean"], "nullable": true, "minimum": 5})",
       {"7", "true", "null"},
       {"4"}},
  });
}

TEST(JsonSchemaTest, AnnotationsSayNothing) {
  CheckSchemas(
      {{R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "title": "T",
              "description": "D", "default": 7, "examples": ["a"], "$comment": "c", "type": "integer",
              "deprecated": true, "readOnly": true, "writeOnly": false, "x-order": 3,
              "widget": "slider", "enumNames": ["a"], "errorMessage": {"type": "?"}, "strict": true})",
        {"1"},
        {"\"a\""}}});
}

// By the specification they do not apply; by what clients mean, an absent type is the keyword's.
TEST(JsonSchemaTest, KeywordsOfOtherTypesSayNothing) {
  CheckSchemas({
      {R"({"type": "integer", "minLength": 5, "uniqueItems": true, "contains": {}})",
       {"1"},
       {"null"}},
      {R"({"type": ["integer", "string"], "minLength": 2})", {"1", "\"ab\""}, {"\"a\""}},
      {R"({"minLength": 2})", {"\"ab\""}, {"1", "\"a\""}},
      {R"({"minimum": 2})", {"2", "2.5"}, {"1", "\"a\""}},
      {R"({"items": {"type": "null"}})", {"[null]"}, {"1", "[1]"}},
      {R"({"required": ["a"]})", {R"({"a": 1})", R"({"a": 1, "b": 2})"}, {"{}", "1"}},
      {R"({"additionalProperties": {"type": "null"}})", {"{}", R"({"a": null})"}, {"null"}},
      {R"({"minimum": 2, "maxLength": 1})", {"2", "\"a\""}, {"1", "\"ab\"", "null"}},
  });
}

TEST(JsonSchemaTest, NumbersAreWithinTheirBounds) {
  CheckSchemas({
      {R"({"type": "integer", "minimum": -3, "maximum": 12})", {"-3", "0", "12"}, {"-4", "13"}},
      {R"({"type": "integer", "exclusiveMinimum": 0})", {"1", "100"}, {"0", "-1"}},
      {R"({"type": "number", "exclusiveMaximum": 1, "minimum": 0})",
       {"0", "0.5", "0.99"},
       {"1", "1.0", "-0.1", "5e-1"}},
      {R"({"minimum": 3, "exclusiveMinimum": true, "type": "integer"})", {"4"}, {"3"}},
      {R"({"type": "integer", "multipleOf": 5})", {"0", "15", "-5"}, {"4"}},
      {R"({"type": "number", "multipleOf": 0.01})", {"0.25", "3"}, {"0.001"}},
  });
}

TEST(JsonSchemaTest, StringsHaveTheirLengths) {
  CheckSchemas({
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"éöü\"", R"("\n\n")"},
       {"\"a\"", "\"abcd\"", R"("\n")"}},
      {R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""}},
      {R"({"type": "string", "minLength": 1.0})", {"\"a\""}, {"\"\""}},
  });
}

TEST(JsonSchemaTest, StringsMatchTheirPatterns) {
  CheckSchemas({
      {R"({"type": "string", "pattern": "^[a-z]{2}$"})",
       {"\"ab\""},
       {"\"abc\"", "\"a\"", "\"aB\""}},
      {R"({"type": "string", "pattern": "b"})", {"\"b\"", "\"abc\""}, {"\"ac\"", "\"\""}},
      {R"({"pattern": "^a+$", "minLength": 2, "maxLength": 3})",
       {"\"aa\"", "\"aaa\""},
       {"\"a\"", "\"aaaa\"", "\"ab\""}},
      {R"({"pattern": "^[^x]*$", "maxLength": 2})",
       {"\"\"", "\"éö\"", R"("\n\\")", R"("\u00e9\ud83d\ude00")", "\"😀😀\""},
       {"\"abc\"", R"("\n\\\\")", R"("\u00e9\ud83d\ude00a")", "\"😀😀😀\""}},
      {R"({"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string"})",
       {"\"az\"", "\"abcz\""},
       {"\"a\"", "\"z\"", "\"za\""}},
      {R"({"pattern": "^(?!ab)(?=.*[0-9])[a-z0-9]+$"})",
       {"\"a1\"", "\"b0c\""},
       {"\"ab1\"", "\"a\""}},
      {R"j({"pattern": "^(?!a)", "type": "string"})j", {"\"b\"", "\"\""}, {"\"a\"", R"("\u0061")"}},
  });
}

TEST(JsonSchemaTest, ConstantsAreWrittenWithoutSpaces) {
  CheckSchemas({
      {R"({"const": {"a": [1, 2.50], "é": null}})",
       {R"({"a":[1,2.50],"é":null})"},
       {R"({"a": [1,2.50],"é":null})", R"({"a":[1,2.5],"é":null})"}},
      {R"({"enum": ["red", "green", "re", 1, null, "a\"b"]})",
       {"\"red\"", "\"re\"", "1", "null", R"("a\"b")"},
       {"\"r\"", "red", "\"gree\"", "2"}},
      {R"({"type": "string", "enum": ["a", 1, "b"]})", {"\"a\"", "\"b\""}, {"1"}},
      {R"({"type": "integer", "enum": [1, 1.5, 2.0, "a"]})", {"1", "2.0"}, {"1.5", "2"}},
      {R"({"enum": [1, 5, 10], "minimum": 4, "maximum": 9})", {"5"}, {"1", "10"}},
      {R"({"enum": [24691357802, 12345678902], "multipleOf": 12345678901})",
       {"24691357802"},
       {"12345678902"}},
      {R"({"enum": ["a", "abc"], "maxLength": 2})", {"\"a\""}, {"\"abc\""}},
      {R"({"enum": ["a", "b"], "const": "b"})", {"\"b\""}, {"\"a\""}},
      {R"({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3.0, 2, 7]}]})", {"2", "3.0"}, {"1", "7"}},
      {R"({"enum": ["2020-01-01"], "format": "date"})", {"\"2020-01-01\""}, {"\"2020-01-02\""}},
      // Strings have formats that are not described here: 0999-01-01 is a date.
      {R"({"enum": ["0999-01-01", "b"], "format": "date"})", {"\"0999-01-01\"", "\"b\""}, {}},
  });
}

TEST(JsonSchemaTest, ArraysHoldTheirItems) {
  CheckSchemas({
      {R"({"type": "array", "items": {"type": "integer"}})",
       {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
       {"[1,]", "[,1]", "[1 2]", "[\"a\"]", "[1", "[1 ,2]"}},
      {R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3})",
       {"[1,1]", "[1,1,1]"},
       {"[]", "[1]", "[1,1,1,1]"}},
      {R"({"type": "array", "minItems": 1})", {"[1]", "[[]]"}, {"[]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"type": "array", "items": false})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "items": {"type": "null"}, "minItems": 70, "maxItems": 71})",
       {},
       {"[null]"}},
      {R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"type": "array", "uniqueItems": false, "items": {"const": 1}})", {"[1,1]"}, {"[2]"}},
  });
}

TEST(JsonSchemaTest, CountsOfItemsAreExact) {
  const auto nulls = [](int count) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += i == 0 ? "null" : ",null";
    return text + "]";
  };
  CheckSchemas(
      {{R"({"items": {"type": "null"}, "minItems": 70, "maxItems": 150})",
        {nulls(70), nulls(71), nulls(150)},
        {nulls(69), nulls(151), nulls(1)}},
       {R"({"items": {"type": "null"}, "minItems": 70})", {nulls(70), nulls(300)}, {nulls(69)}}});
}

// All of them are written where nothing says how many; more only where something says what.
TEST(JsonSchemaTest, FirstItemsHaveRulesOfTheirOwn) {
  CheckSchemas({
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]})",
       {"[\"a\", 1]"},
       {"[]", "[\"a\"]", "[1, \"a\"]", "[\"a\", 1, 2]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "minItems": 0})",
       {"[]", "[1]", "[1,2]"},
       {"[2]", "[1,2,3]"}},
      {R"({"prefixItems": [{"const": 1}], "items": {"const": 2}})",
       {"[1]", "[1,2]", "[1,2,2]"},
       {"[]", "[2]", "[1,1]"}},
      {R"({"prefixItems": [{"const": 1}], "minItems": 3})", {"[1,2,3]", "[1,{},3,4]"}, {"[1,2]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1})", {"[1]"}, {"[]", "[1,2]"}},
      {R"({"items": [{"const": 1}], "additionalItems": {"const": 2}})",
       {"[1]", "[1,2]"},
       {"[1,1]"}},
      {R"({"items": [{"const": 1}, {"const": 2}], "additionalItems": false, "minItems": 2})",
       {"[1,2]"},
       {"[1]", "[1,2,2]"}},
      {R"({"prefixItems": [true, false]})", {"[7]"}, {"[]", "[7,7]"}},
      {R"({"allOf": [{"prefixItems": [{"minimum": 3}]}, {"items": {"type": "integer"}}]})",
       {"[3]", "[4,1]"},
       {"[2]", "[3.5]", "[3,1.5]"}},
  });
}

TEST(JsonSchemaTest, AlternativesAreEachAllowed) {
  CheckSchemas({
      {R"({"anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}, {"const": 5}]})",
       {"\"abc\"", "null", "5"},
       {"\"a\"", "6"}},
      {R"({"anyOf": [{"const": "a"}, {"const": "ab"}, {"enum": ["b", "ab"]}]})",
       {"\"a\"", "\"ab\"", "\"b\""},
       {"\"abc\""}},
      {R"({"anyOf": [false, {"type": "null"}]})", {"null"}, {"1"}},
      {R"({"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"const": 3}]})",
       {"1", "2", "3"},
       {"4"}},
      {R"({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "array"}]})",
       {"\"a\"", "1", "[]"},
       {"1.5", "null"}},
      {R"({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]})",
       {"\"a\"", "\"b\""},
       {"\"c\""}},
  });
}

// What stands beside alternatives holds for each of them; those that it rules out are no more.
TEST(JsonSchemaTest, KeywordsBesideAlternativesHoldToo) {
  CheckSchemas({
      {R"({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": -5}]})",
       {"5", "-5"},
       {"0", "5.5"}},
      {R"({"type": "string", "anyOf": [{"type": "integer"}, {"minLength": 2}]})",
       {"\"ab\""},
       {"1", "\"a\""}},
      {R"({"enum": [1, "a", null], "anyOf": [{"type": "integer"}, {"type": "null"}]})",
       {"1", "null"},
       {"\"a\""}},
      {R"({"anyOf": [{"minimum": 5}, {"maximum": 0}], "allOf": [{"multipleOf": 5}],
           "type": "integer"})",
       {"10", "-5"},
       {"7", "-7"}},
      {R"({"anyOf": [{"minimum": 5}, {"maximum": 0}], "oneOf": [{"type": "integer"},
           {"type": "null"}]})",
       {"5", "0", "null"},
       {"1", "0.5"}},
  });
}

TEST(JsonSchemaTest, ReferencesAreFollowed) {
  CheckSchemas({
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}})", {"null"}, {"1"}},
      {R"({"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": {"const": 1}}})", {"1"}, {"2"}},
      {R"({"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": "integer"}}})",
       {"3"},
       {"2", "3.5"}},
      {R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"const": 1}},
           "items": {"$ref": "#/$defs/a"}})",
       {"[1,1]"},
       {"[2]"}},
      {R"({"prefixItems": [{"const": 1}, {"$ref": "#/prefixItems/0"}]})", {"[1,1]"}, {"[1,2]"}},
  });
}

TEST(JsonSchemaTest, SchemasMayHoldThemselves) {
  CheckSchemas({
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
      {R"({"$defs": {"tree": {"anyOf": [{"type": "null"}, {"type": "array", "minItems": 2,
             "maxItems": 2, "items": {"$ref": "#/$defs/tree"}}]}}, "$ref": "#/$defs/tree"})",
       {"null", "[null,[null,null]]"},
       {"[]", "[null]"}},
      {R"({"type": "object", "properties": {"v": {"type": "integer"},
           "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v", "next"],
           "additionalProperties": false})",
       {R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
  });
}

TEST(JsonSchemaTest, SchemasTogetherHoldTogether) {
  CheckSchemas({
      {R"({"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 5}]})",
       {"3", "5"},
       {"2", "6"}},
      {R"({"allOf": [{"$ref": "#/$defs/a"}], "description": "d", "$defs": {"a": {"const": 1}}})",
       {"1"},
       {"2"}},
      {R"({"allOf": [true, {}, {"type": "null"}]})", {"null"}, {"1"}},
      {R"({"allOf": [{"type": ["integer", "null"]}, {"type": ["number", "string"]}]})",
       {"1"},
       {"1.5", "null", "\"a\""}},
      {R"({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
           "$defs": {"a": {"allOf": [{"$ref": "#/$defs/c"}], "minimum": 1},
                     "b": {"allOf": [{"$ref": "#/$defs/c"}], "maximum": 2},
                     "c": {"type": "integer"}}})",
       {"1", "2"},
       {"0", "3", "1.5"}},
  });
}

TEST(JsonSchemaTest, NothingIsWhatFalseAllows) {
  CheckSchemas({
      {R"({"type": ["integer", "array"], "items": {"not": {}}})", {"1", "[]"}, {"[1]"}},
      {R"({"properties": {"a": {"not": {}}, "b": {"const": 1}}})",
       {"{}", R"({"b":1})"},
       {R"({"a":1})"}},
      {R"({"type": "integer", "not": false})", {"1"}, {"null"}},
  });
}

}  // namespace
}  // namespace refrain::engine
