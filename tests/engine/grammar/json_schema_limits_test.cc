// Schemas that are large, or made to take long.

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_text.h"
#include "tests/engine/grammar/schema_grammar.h"
#include "tests/support/cpu_time.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::MakeSchemaGrammar;
using refrain::testing::SchemaRefusal;

// A list of `count` pieces with commas; @ stands for the number of each.
std::string Listed(int count, std::string_view piece) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ",";
    for (const char c : piece) {
      if (c == '@') {
        text += std::to_string(i);
      } else {
        text += c;
      }
    }
  }
  return text;
}

double SecondsFor(const std::string& schema, std::string* refusal) {
  const auto started = refrain::testing::ThreadCpuTime();
  *refusal = SchemaRefusal(schema);
  return std::chrono::duration<double>(refrain::testing::ThreadCpuTime() - started).count();
}

// Any of them may be left out, and the next one be any of those behind it.
TEST(JsonSchemaLimitsTest, HundredsOfOptionalPropertiesTakeStatesForTheirNamesAlone) {
  const auto schema = [](int count) {
    return R"({"properties": {)" + Listed(count, R"("property_@": {"type": "integer"})") + "}}";
  };
  const auto small = MakeSchemaGrammar(schema(200));
  const auto large = MakeSchemaGrammar(schema(800));
  ASSERT_TRUE(small.ok() && large.ok()) << large.status();
  EXPECT_LT(large->num_states(), 5 * small->num_states());
  EXPECT_LT(large->num_states(), 20'000u);
  EXPECT_TRUE(Accepts(*large, R"({"property_7": 1, "property_70": 2, "property_799": 3})"));
  EXPECT_FALSE(Accepts(*large, R"({"property_70": 1, "property_7": 2})"));
  EXPECT_FALSE(Accepts(*large, R"({"property_800": 1})"));
}

TEST(JsonSchemaLimitsTest, LargeEnumsShareWhatTheyBeginWith) {
  const auto grammar = MakeSchemaGrammar(R"({"enum": [)" + Listed(3000, R"("number @")") + "]}");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Accepts(*grammar, "\"number 2999\""));
  EXPECT_FALSE(Accepts(*grammar, "\"number 3000\""));
  EXPECT_LT(grammar->num_states(), 4000u);
}

// Whoever makes masks of states makes few: twins differ in nothing that 64 bytes can show.
TEST(JsonSchemaLimitsTest, CountedTextsHaveTwins) {
  for (const char* schema :
       {R"({"pattern": "^(ab|c)*$", "minLength": 80, "maxLength": 200})",
        R"({"pattern": "^(ab|c)*$", "maxLength": 200})", R"({"pattern": "^a*$", "minLength": 100})",
        R"({"items": {"const": "a"}, "minItems": 70, "maxItems": 200})"}) {
    const auto grammar = MakeSchemaGrammar(schema);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    size_t num_twins = 0;
    for (size_t i = 0; i < grammar->num_states(); ++i) {
      const auto state = static_cast<StateId>(i);
      const StateId twin = grammar->twin(state);
      if (twin == state) continue;
      ++num_twins;
      EXPECT_EQ(refrain::testing::FindDifference(*grammar, state, twin, "abc[],\" ", 64),
                std::nullopt)
          << schema << " " << i;
    }
    EXPECT_GT(num_twins, 30u) << schema;
  }
}

TEST(JsonSchemaLimitsTest, TooLargeSchemasAreRefused) {
  for (const char* schema :
       {R"({"items": {}, "minItems": 1000000})", R"({"minLength": 4000000000})",
        R"({"items": {}, "maxItems": 4000000000})"}) {
    EXPECT_NE(SchemaRefusal(schema).find("grammar is too large"), std::string::npos) << schema;
  }
  EXPECT_NE(SchemaRefusal("{\"properties\": {" + Listed(60'000, R"("p@": {"const": @})") + "}}"),
            "");
}

// Every one of these was a square, or worse, of its size in some way of drawing it.
TEST(JsonSchemaLimitsTest, NoSchemaTakesLong) {
  const int n = 20'000;
  std::string chain;  // of references
  for (int i = 1; i <= n; ++i) {
    chain +=
        "\"d" + std::to_string(i) + R"(": {"$ref": "#/$defs/d)" + std::to_string(i - 1) + "\"},";
  }
  const std::string schemas[] = {
      // Names: to be looked up, ordered, told from others.
      R"({"properties": {)" + Listed(n, R"("p@": {})") + R"(}, "required": [)" +
          Listed(n, R"("p@")") + "]}",
      R"({"properties": {)" + Listed(n, R"("p@": {})") + R"(}, "additionalProperties": true})",
      R"({"required": [)" + Listed(n, R"("p@")") + "]}",
      R"({"propertyNames": {"enum": [)" + Listed(n, R"("p@")") + "]}}",
      // References: long chains, many to one, many to many.
      R"({"$defs": {)" + chain + R"("d0": {}}, "prefixItems": [)" +
          Listed(n, R"({"$ref": "#/$defs/d60"})") + "]}",
      R"({"$defs": {)" + chain + R"("d0": {}}, "$ref": "#/$defs/d20000"})",
      R"({"$defs": {"d": {"allOf": [)" + Listed(n, "{}") + R"(]}}, "prefixItems": [)" +
          Listed(n, R"({"$ref": "#/$defs/d", "minLength": @})") + "]}",
      R"({"$defs": {)" + Listed(n, R"("d@": {"type": "null"})") + R"(}, "prefixItems": [)" +
          Listed(n, R"({"$ref": "#/$defs/d7"})") + "]}",
      // Alternatives: in pairs, times each other, times what stands beside them.
      R"({"oneOf": [)" + Listed(n, R"({"const": @})") + "]}",
      R"({"oneOf": [)" + Listed(n, R"({"properties": {"k": {"const": @}}})") + "]}",
      R"({"allOf": [)" + Listed(60, R"({"anyOf": [{"minLength": @}, {"maxLength": 1@}]})") + "]}",
      R"({"properties": {)" + Listed(2000, R"("p@": {})") + R"(}, "anyOf": [)" +
          Listed(2000, R"({"required": ["p@"]})") + "]}",
      R"({"anyOf": [)" + Listed(n, R"({"type": "object", "properties": {"a": {}}})") + "]}",
      // Constants.
      R"({"allOf": [)" + Listed(200, R"({"enum": [)" + Listed(200, "@") + "]}") + "]}",
      // Patterns: automata of their own, and products.
      R"({"properties": {)" +
          Listed(n, R"("p@": {"pattern": "(a|b)*a(a|b){12}@", "maxLength": 1})") + "}}",
      R"({"pattern": "^[a-z]*$", "maxLength": 1000000})",
      R"({"pattern": "^(?!(.*a){20})(?!(.*b){20})(?!(.*c){20}).*$"})",
      R"({"multipleOf": 0.00000001, "minimum": 1e-300, "maximum": 1e300})",
      // Values beside each other.
      R"({"prefixItems": [)" + Listed(n, R"({"minimum": @, "maximum": 1e300})") + "]}",
  };
  for (const std::string& schema : schemas) {
    std::string refusal;
    EXPECT_LT(SecondsFor(schema, &refusal), 3 * refrain::testing::kSlowBuildFactor)
        << schema.substr(0, 200) << "\n"
        << refusal;
    EXPECT_LT(refusal.size(), 1000u);
  }
}

// Texts that random walks find are all accepted, and all end.
TEST(JsonSchemaLimitsTest, RecursiveSchemasHaveTextsThatEnd) {
  const auto grammar = MakeSchemaGrammar(R"({"$defs": {"node": {"type": "object", "properties": {
      "value": {}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
      "required": ["children"]}}, "$ref": "#/$defs/node"})");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  refrain::testing::RandomTexts texts(&*grammar, 5);
  for (int i = 0; i < 100; ++i) {
    const std::string text = texts.Next(100);
    EXPECT_TRUE(Accepts(*grammar, text)) << text;
  }
}

}  // namespace
}  // namespace refrain::engine
