#include "server/json.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace refrain::server {
namespace {

TEST(ParseJson, KeepsTheOrderOfKeys) {
  const auto document = ParseJson(R"({"z":1,"a":{"y":[1,{"k":null}],"b":-2.5e3},"m":"x"})");
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->dump(), R"({"z":1,"a":{"y":[1,{"k":null}],"b":-2500.0},"m":"x"})");
}

TEST(ParseJson, SaysWhereTheTextIsWrong) {
  const auto document = ParseJson("{\n \"a\": tru }");
  ASSERT_FALSE(document.ok());
  EXPECT_NE(document.status().message().find("line 2"), std::string::npos) << document.status();
}

TEST(ParseJson, BoundsNesting) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(64)).ok());
  EXPECT_FALSE(ParseJson(nested(65)).ok());
  EXPECT_FALSE(ParseJson(nested(1'000'000)).ok());
  EXPECT_FALSE(ParseJson(std::string(1'000'000, '[')).ok());
}

// Twenty times its size in memory; ids of tokens are what comes in such numbers.
TEST(ParseJson, RefusesTextsOfManyEmptyValues) {
  const auto list = [](const std::string& value, int count) {
    std::string text = "[" + value;
    for (int i = 1; i < count; ++i) text += "," + value;
    return text + "]";
  };
  EXPECT_TRUE(ParseJson(list("12345", 2'800'000)).ok());
  EXPECT_TRUE(ParseJson(list("{}", 50'000)).ok());
  for (const char* value : {"{}", "[]", "\"\"", "{\"a\":0}"}) {
    const auto document = ParseJson(list(value, 2'000'000));
    ASSERT_FALSE(document.ok()) << value;
    EXPECT_NE(document.status().message().find("bytes of memory"), std::string::npos)
        << document.status();
  }
}

TEST(MemoryOf, IsAboutWhatTheAllocatorGives) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer's allocator does not say what it gave";
#endif
  for (const char* text : {R"([{},{},{},{}])", R"(["a","b","c","d"])", R"({"a":1,"b":[1,2,3]})",
                           R"(["a text that is longer than what a string holds itself"])"}) {
    const Json one = *ParseJson(text);
    const size_t before = ::mallinfo2().uordblks;
    const std::vector<Json> many(10'000, one);
    const auto got = static_cast<double>(::mallinfo2().uordblks - before);
    const double told = static_cast<double>(MemoryOf(one)) * 10'000;
    EXPECT_GT(told, 0.7 * got) << text;
    EXPECT_LT(told, 1.6 * got) << text;
  }
}

TEST(ParseJson, RefusesDuplicateKeysInSmallAndLargeObjects) {
  EXPECT_FALSE(ParseJson(R"({"a":1,"b":2,"a":3})").ok());
  EXPECT_FALSE(ParseJson(R"([{"x":{"a":1,"a":1}}])").ok());
  EXPECT_TRUE(ParseJson(R"([{"a":1},{"a":1}])").ok());
  std::string large = "{";
  for (int i = 0; i < 100; ++i) large += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_TRUE(ParseJson(large + "\"last\":0}").ok());
  EXPECT_FALSE(ParseJson(large + "\"k50\":0}").ok());
}

TEST(ParseJson, KeepsTheLastOfEqualKeysAsPythonDoes) {
  const auto parsed = ParseJson(R"({"a":1,"b":2,"a":{"c":3,"c":[4]},"a":5,"d":{"c":3,"c":[4]}})",
                                {.as_python = true});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->dump(), R"({"a":5,"b":2,"d":{"c":[4]}})");
  std::string large = "{";
  for (int i = 0; i < 100; ++i)
    large += "\"k" + std::to_string(i % 50) + "\":" + std::to_string(i) + ",";
  const auto many = ParseJson(large + "\"last\":0}", {.as_python = true});
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ(many->size(), 51u);
  EXPECT_EQ((*many)["k7"], 57);
}

// Each in its place among the others, and none in strings.
TEST(ParseJson, TakesNumbersBeyondADoubleAsPythonDoes) {
  const std::string text =
      R"([1,1e999,"1e999,NaN\\",-2.5E+400,0,{"NaN":NaN},[Infinity,-Infinity],1e-999,7,)" +
      std::string(400, '9') + "]";
  EXPECT_FALSE(ParseJson(text).ok());
  const auto parsed = ParseJson(text, {.as_python = true});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Json& list = *parsed;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(list[0], 1);
  EXPECT_EQ(list[1], kInfinity);
  EXPECT_EQ(list[2], "1e999,NaN\\");
  EXPECT_EQ(list[3], -kInfinity);
  EXPECT_EQ(list[4], 0);
  EXPECT_TRUE(std::isnan(list[5]["NaN"].get<double>()));
  EXPECT_EQ(list[6], Json({kInfinity, -kInfinity}));
  EXPECT_EQ(list[7], 0.0);
  EXPECT_EQ(list[8], 7);
  EXPECT_EQ(list[9], kInfinity);
}

TEST(ParseJson, TakesAsPythonDoesNoWrongSpellings) {
  for (const char* text :
       {"01e999", "1.e999", "-e999", ".5e999", "+1e999", "1e999x", "nan", "inf", "-NaN", "infinity",
        "[1e999", "1e999 2", "0x1p9999", "{NaN:1}", "\"1e999", "1e9991e999", "1e999\"\""}) {
    EXPECT_FALSE(ParseJson(text, {.as_python = true}).ok()) << text;
  }
}

TEST(ParseJson, TakesCommentsOnlyWhereAllowed) {
  const char* const text = "{\"a\":1 // one\n}";
  EXPECT_FALSE(ParseJson(text).ok());
  EXPECT_TRUE(ParseJson(text, {.allow_comments = true}).ok());
}

TEST(ParseJson, RefusesIllFormedUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xf8\x88\x80\x80\x80\"",
                           "\"\xc0\xaf\"", "{\"\xff\":1}"}) {
    EXPECT_FALSE(ParseJson(text).ok());
  }
}

TEST(AppendJsonString, ReadsBackAsTheSame) {
  std::string all;
  for (int c = 0; c < 128; ++c) all.push_back(static_cast<char>(c));
  all += "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  std::string quoted;
  AppendJsonString(all, &quoted);
  const auto document = ParseJson(quoted);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->get<std::string>(), all);
}

// Clients that cut a stream into lines as Python's `str.splitlines` does would cut inside a string.
TEST(AppendJsonString, HasNoLineEndOfUnicode) {
  const std::string line_ends = "a\u0085b\u2028c\u2029\u2028";
  std::string quoted;
  AppendJsonString(line_ends, &quoted);
  EXPECT_EQ(quoted, R"("a\u0085b\u2028c\u2029\u2028")");
  const auto document = ParseJson(quoted);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->get<std::string>(), line_ends);

  const std::string neighbours = "\u0084\u0086\u2027\u202A\u20A8\u00C2";
  std::string unchanged;
  AppendJsonString(neighbours, &unchanged);
  EXPECT_EQ(unchanged, '"' + neighbours + '"');
}

TEST(AppendJsonNumber, IsShortAndExact) {
  std::string out;
  AppendJsonNumber(-0.5f, &out);
  out += ' ';
  AppendJsonNumber(0.1f, &out);
  out += ' ';
  AppendJsonNumber(1e-30, &out);
  EXPECT_EQ(out, "-0.5 0.1 1e-30");
}

}  // namespace
}  // namespace refrain::server
