// What the grammars of schemas take, and what not: objects.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/grammar/json_schema.h"
#include "tests/engine/grammar/schema_cases.h"

namespace refrain::engine {
namespace {

using refrain::testing::CheckSchemas;

TEST(JsonSchemaObjectsTest, PropertiesComeInOrder) {
  CheckSchemas(
      {{R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2},
              "c": {"const": 3}}, "required": ["b"]})",
        {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"},
        {"{}", R"({"a":1})", R"({"a":1,"c":3})", R"({"b":2,"a":1})", R"({"b":2,"b":2})",
         R"({"b":2,})", R"({,"b":2})", R"({"b":1})", R"({"b":2,"d":4})", R"({"b":2 "c":3})"}}});
}

TEST(JsonSchemaObjectsTest, SpaceStandsWhereModelsWriteIt) {
  CheckSchemas({{R"({"properties": {"a": {"const": 1}, "b": {"const": 2}}})",
                 {R"({ "a": 1, "b": 2 })", "{\n  \"a\": 1,\n  \"b\": 2\n}", "{ }", "{\n}"},
                 {R"({"a" :1})", R"({"a":1 ,"b":2})", R"({  "a":1})", R"( {})", R"({} )"}}});
}

TEST(JsonSchemaObjectsTest, OptionalPropertiesAreLeftOutOrNot) {
  CheckSchemas({
      {R"({"properties": {"a": true, "b": true}})",
       {"{}", R"({"a":1})", R"({"b":1})", R"({"a":[],"b":{}})"},
       {R"({"c":1})", R"({"b":1,"a":1})", R"({"a":})"}},
      {R"({"properties": {"abc": {"const": 1}, "ab": {"const": 2}, "abd": {"const": 3}}})",
       {R"({"abc":1,"ab":2,"abd":3})", R"({"abc":1,"abd":3})", R"({"ab":2,"abd":3})",
        R"({"abd":3})"},
       {R"({"ab":1})", R"({"abd":3,"abc":1})", R"({"ab":2,"abc":1})", R"({"a":2})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3},
           "d": {"const": 4}}, "required": ["a", "d"]})",
       {R"({"a":1,"d":4})", R"({"a":1,"c":3,"d":4})", R"({"a":1,"b":2,"c":3,"d":4})"},
       {R"({"a":1})", R"({"d":4})", R"({"a":1,"c":3})", R"({"b":2,"d":4})"}},
  });
}

TEST(JsonSchemaObjectsTest, NamesAreEscapedAsJsonWants) {
  CheckSchemas(
      {{R"({"properties": {"a\"\\\n": {"const": 1}, "é/": {"const": 2}, "": {"const": 3}}})",
        {R"({"a\"\\\n":1,"é/":2,"":3})", R"({"":3})"},
        {R"({"\u00e9/":2})", R"({"a":1})"}}});
}

TEST(JsonSchemaObjectsTest, FurtherPropertiesFollowTheNamedOnes) {
  CheckSchemas({
      {R"({"properties": {"ab": {"const": 1}, "é": {"const": 2}},
           "additionalProperties": {"type": "null"}})",
       {"{}", R"({"ab":1,"x":null,"y":null})", R"({"x":null})", R"({"a":null})", R"({"abc":null})",
        R"({"":null})", R"({"è":null,"éa":null})", R"({"b":null,"ax":null})"},
       {R"({"ab":null})", R"({"x":1})", R"({"é":null})", R"({"x":null,"ab":1})",
        R"({"\u0061b":null})", R"({"x":null,})", R"({"\n":null})"}},
      {R"({"properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": true})",
       {R"({"a":1})", R"({"a":1,"b":[]})"},
       {"{}", R"({"b":1})", R"({"a":2})", R"({"b":1,"a":1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a":1,"\n":2})"},
       {R"({"a":"b"})", R"({"a":1,})", R"({,"a":1})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"type": "object", "additionalProperties": true})", {R"({"a":1})"}, {"1"}},
      {R"({"properties": {"a": false, "b": {"const": 1}}, "additionalProperties": true})",
       {R"({"b":1,"c":2})", R"({"aa":1})"},
       {R"({"a":1})", R"({"b":1,"a":1})"}},
  });
}

TEST(JsonSchemaObjectsTest, RequiredPropertiesNeedNotBeNamed) {
  CheckSchemas({
      {R"({"properties": {"a": {"const": 1}}, "required": ["x", "a"]})",
       {R"({"a":1,"x":[2]})"},
       {R"({"a":1})", R"({"x":1})", R"({"x":1,"a":1})", R"({"a":1,"x":1,"y":1})"}},
      {R"({"required": ["x"], "additionalProperties": {"type": "null"}})",
       {R"({"x":null})", R"({"x":null,"y":null})"},
       {R"({"x":1})", "{}"}},
  });
}

TEST(JsonSchemaObjectsTest, NamesAreHeldToTheirSchema) {
  CheckSchemas({
      {R"({"type": "object", "propertyNames": {"type": "string"},
           "additionalProperties": {"const": 1}})",
       {R"({"a":1})"},
       {R"({"a":2})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["a", "b"]},
           "additionalProperties": {"const": 1}, "required": ["b"]})",
       {R"({"b":1})", R"({"b":1,"a":1})"},
       {R"({"a":1})", R"({"b":1,"c":1})", R"({"b":2})"}},
      {R"({"propertyNames": {"pattern": "^x"}, "additionalProperties": {"const": 1}})",
       {"{}", R"({"x":1,"xy":1})"},
       {R"({"y":1})"}},
      {R"({"patternProperties": {"^x": {"const": 1}}, "type": "object"})",
       {"{}", R"({"x":1,"xy":1})"},
       {R"({"y":1})", R"({"x":2})"}},
      {R"({"patternProperties": {"^x": {"const": 1}}, "additionalProperties": false})",
       {R"({"x1":1})"},
       {R"({"y":1})"}},
      {R"({"propertyNames": false})", {"{}"}, {R"({"a":1})"}},
      {R"({"propertyNames": {"pattern": "^a$", "minLength": 2}})",
       {"{}"},
       {R"({"a":1})", R"({"aa":1})"}},
      {R"({"properties": {"a": true, "b": true}, "propertyNames": {"enum": ["b"]}})",
       {R"({"b":1})", "{}"},
       {R"({"a":1})"}},
  });
}

TEST(JsonSchemaObjectsTest, CountsOfPropertiesHoldWhereTheyAreKnown) {
  CheckSchemas({
      {R"({"properties": {"a": true}, "minProperties": 1})", {R"({"a":1})"}, {"{}"}},
      {R"({"type": "object", "minProperties": 1})", {R"({"a":1})"}, {"{}", "{ }"}},
      {R"({"properties": {"a": true, "b": true}, "required": ["a", "b"], "minProperties": 2})",
       {R"({"a":1,"b":1})"},
       {R"({"a":1})"}},
      {R"({"properties": {"a": true}, "maxProperties": 2, "minProperties": 0})", {"{}"}, {}},
  });
}

TEST(JsonSchemaObjectsTest, ObjectsTogetherHaveTheirPropertiesTogether) {
  CheckSchemas({
      {R"({"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                     {"properties": {"b": {"const": 2}}}]})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {R"({"b":2})", R"({"b":2,"a":1})"}},
      {R"({"allOf": [{"properties": {"a": {"minimum": 3}}}, {"properties": {"a": {"type": "integer"}}}]})",
       {R"({"a":3})", "{}"},
       {R"({"a":2})", R"({"a":3.5})"}},
      {R"({"properties": {"a": {"const": 1}}, "allOf": [{"properties": {"b": {"const": 2}},
           "additionalProperties": {"type": "integer"}}]})",
       {R"({"a":1,"b":2})"},
       {R"({"a":1,"c":3})"}},
      {R"({"allOf": [{"properties": {"a": {"type": ["integer", "string"]}}},
                     {"additionalProperties": {"type": "integer"}}]})",
       {R"({"a":1})"},
       {R"({"a":"x"})"}},
      {R"({"properties": {"a": true, "b": true}, "allOf": [{"properties": {"a": true},
           "additionalProperties": false}]})",
       {R"({"a":1})", "{}"},
       {R"({"b":1})"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}}, "unevaluatedProperties": false,
           "allOf": [{"properties": {"b": {"const": 2}}}]})",
       {R"({"a":1,"b":2})"},
       {R"({"c":1})"}},
  });
}

// An alternative that asks for what the rest forbids leaves the others.
TEST(JsonSchemaObjectsTest, AlternativesThatCannotBeAreLeftOut) {
  CheckSchemas({
      {R"({"properties": {"a": false, "b": true}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"b":1})"},
       {"{}", R"({"a":1})"}},
      {R"({"propertyNames": {"enum": ["b"]}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"b":1})"},
       {"{}", R"({"a":1})"}},
  });
}

TEST(JsonSchemaObjectsTest, AlternativesShareWhatStandsBesideThem) {
  CheckSchemas({{R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
              "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
                 {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
                 {"{}"}},
                {R"({"properties": {"k": {"enum": ["x", "y"]}}, "required": ["k"],
              "oneOf": [{"properties": {"k": {"const": "x"}, "v": {"const": 1}}},
                        {"properties": {"k": {"const": "y"}, "w": {"const": 2}}}]})",
                 {R"({"k":"x","v":1})", R"({"k":"y","w":2})", R"({"k":"x"})"},
                 {R"({"k":"x","w":2})", R"({"k":"z"})", "{}"}}});
}

// Both would hold for an object without its kind.
TEST(JsonSchemaObjectsTest, WhatTellsAlternativesApartIsRequired) {
  const char* const pets = R"({
      "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
      "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                        "propertyName": "kind"},
      "$defs": {"Cat": {"type": "object", "properties": {
                          "kind": {"const": "cat", "default": "cat", "type": "string"},
                          "lives": {"type": "integer"}}},
                "Dog": {"type": "object", "properties": {
                          "kind": {"const": "dog", "default": "dog", "type": "string"},
                          "lives": {"type": "integer"}}}}})";
  CheckSchemas({
      {pets,
       {R"({"kind":"cat","lives":9})", R"({"kind":"dog"})"},
       {"{}", R"({"lives":9})", R"({"kind":"cow"})"}},
      {R"({"oneOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                     {"properties": {"b": {"const": 1}}, "required": ["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
  });
}

}  // namespace
}  // namespace refrain::engine
