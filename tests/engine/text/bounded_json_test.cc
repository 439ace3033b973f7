// JSON that anybody may have written.

#include "engine/text/bounded_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace refrain::engine {
namespace {

std::string Nested(int depth) {
  return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
}

TEST(BoundedJsonTest, TreesAreTheLibrarys) {
  for (const char* text :
       {"{}", R"({"a": [1, -2, 3.5, true, null, "\u00e9", {"b": {}, "c": [[], {}]}], "d": 1e3})",
        R"({"a": 1, "b": {"c": 2, "c": [3]}, "a": {"x": "y"}})"}) {
    const auto parsed = ParseBoundedJson("f", text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, nlohmann::json::parse(text));
  }
}

TEST(BoundedJsonTest, RefusesByNameWhatIsNoObject) {
  EXPECT_EQ(ParseBoundedJson("f", "[]").status().message(), "f: is not a JSON object");
  EXPECT_EQ(ParseBoundedJson("f", "null").status().message(), "f: is not a JSON object");
  EXPECT_EQ(ParseBoundedJson("f", "{\"a\":").status().message(),
            "f: is not valid JSON: ends too early, after 5 bytes");
  EXPECT_EQ(ParseBoundedJson("f", "{\"a\": x}").status().message(),
            "f: is not valid JSON: wrong at byte 7 of 8");
}

// What is behind is not read: 64 MiB of brackets end at the 33rd.
TEST(BoundedJsonTest, RefusesDeepNesting) {
  EXPECT_TRUE(ParseBoundedJson("f", Nested(32)).ok());
  for (const std::string& text : {Nested(33), std::string(64 << 20, '[')}) {
    EXPECT_EQ(ParseBoundedJson("f", text).status().message(), "f: JSON nested deeper than 32");
  }
}

// Texts of values that take many times their own size.
TEST(BoundedJsonTest, RefusesWhatWouldTakeMoreMemoryThanTheBound) {
  const JsonBounds bounds{.max_memory_bytes = 1 << 20};
  for (const char* value : {"[],", "{},", "0,", "\"\",", "{\"\":0},"}) {
    const auto of = [&](int count) {
      std::string text = "{\"a\": [";
      for (int i = 0; i < count; ++i) text += value;
      return ParseBoundedJson("f", text + "0]}", bounds).status();
    };
    EXPECT_EQ(of(5'000), absl::OkStatus()) << value;
    EXPECT_EQ(of(70'000).message(), "f: its values would take over 1048576 bytes of memory")
        << value;
  }
  std::string members = "{\"\": 0";
  for (int i = 0; i < 20'000; ++i) members += ",\"" + std::to_string(i) + "\":0";
  EXPECT_EQ(ParseBoundedJson("f", members + "}", bounds).status().message(),
            "f: its values would take over 1048576 bytes of memory");
}

}  // namespace
}  // namespace refrain::engine
