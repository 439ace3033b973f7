// Schemas that anybody may have written.

#include "engine/grammar/schema_value.h"

#include <gtest/gtest.h>

#include <string>

namespace refrain::engine {
namespace {

std::string Refusal(std::string_view text) {
  return std::string(ParseSchema(text).status().message());
}

TEST(SchemaValueTest, KeepsOrderAndNumbersAsTheyAreWritten) {
  const std::string text =
      R"({"z":1.50,"a":[-3,1E2,18446744073709551615,100000000000000000000],"é":"\"\\\n/","b":{}})";
  const auto root = ParseSchema(text);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(JsonText(**root), text);
}

TEST(SchemaValueTest, EqualValuesHaveEqualComparableTexts) {
  const auto comparable = [](std::string_view text) { return ComparableText(**ParseSchema(text)); };
  EXPECT_EQ(comparable("1"), comparable("1.00"));
  EXPECT_EQ(comparable("100"), comparable("1e2"));
  EXPECT_EQ(comparable("0"), comparable("-0.0"));
  EXPECT_EQ(comparable(R"({"a": 1, "b": [2.0]})"), comparable(R"({"b": [2], "a": 1.0})"));
  EXPECT_NE(comparable("1"), comparable("true"));
  EXPECT_NE(comparable("1"), comparable("\"1\""));
  EXPECT_NE(comparable("[1,2]"), comparable("[2,1]"));
}

TEST(SchemaValueTest, PointersEscapeSlashesAndTildes) {
  const auto root = ParseSchema(R"({"a/b": [0, {"~c": 1}]})");
  ASSERT_TRUE(root.ok());
  const SchemaValue& inner = (*root)->members[0].value.items[1].members[0].value;
  EXPECT_EQ(PointerTo(inner), "/a~1b/1/~0c");
  EXPECT_EQ(SchemaError(inner, "is wrong").message(), "/a~1b/1/~0c is wrong");
  EXPECT_EQ(SchemaError(**root, "is wrong").message(), "the schema is wrong");
}

// A name of a megabyte is not sent back; what is left is UTF-8.
TEST(SchemaValueTest, MessagesAreShort) {
  std::string name;
  for (int i = 0; i < 500'000; ++i) name += "é";
  const auto root = ParseSchema("{\"" + name + "\": 1}");
  ASSERT_TRUE(root.ok());
  const std::string pointer = PointerTo((*root)->members[0].value);
  EXPECT_LT(pointer.size(), 500u);
  EXPECT_NE(pointer.find("é..."), std::string::npos);
  const std::string refusal = Refusal("{\"" + name + "\": 1, \"" + name + "\": 2}");
  EXPECT_LT(refusal.size(), 500u);
}

TEST(SchemaValueTest, RefusesWhatIsNoJson) {
  EXPECT_EQ(Refusal("{"), "the schema is not valid JSON: ends too early, after 1 bytes");
  EXPECT_EQ(Refusal("{\"a\": x}"), "the schema is not valid JSON: wrong at byte 7 of 8");
  EXPECT_EQ(Refusal(""), "the schema is not valid JSON: ends too early, after 0 bytes");
  EXPECT_NE(Refusal(std::string_view("{}\0", 3)), "");
  EXPECT_NE(Refusal("{\"a\": \"\xff\"}"), "");
  EXPECT_NE(Refusal("{} {}"), "");
  EXPECT_EQ(Refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})"),
            "the schema has the key \"b\" twice in one object");
  EXPECT_EQ(Refusal(R"({"minimum": 1e-500})"),
            "the schema holds a number with an exponent over 400");
}

// Nothing is built of what is too deep or too large.
TEST(SchemaValueTest, RefusesDeepAndLargeTexts) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Refusal(nested(64)), "");
  EXPECT_EQ(Refusal(nested(65)), "the schema is nested deeper than 64");
  EXPECT_EQ(Refusal(std::string(64 << 20, '[')), "the schema is nested deeper than 64");
  std::string zeros = "[0";
  for (int i = 0; i < 1'000'000; ++i) zeros += ",0";
  EXPECT_EQ(Refusal(zeros + "]"), "the schema would take over 67108864 bytes of memory");
}

}  // namespace
}  // namespace refrain::engine
