#include "server/json.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
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

uint64_t ShiftMix(uint64_t value) { return value ^ (value >> 47); }

// Eight bytes of characters of one and two bytes.
std::string RandomWord(std::mt19937* random) {
  std::string word;
  while (word.size() < 8) {
    if (word.size() == 7 || (*random)() % 2 == 0) {
      word += static_cast<char>('0' + (*random)() % 64);
    } else {
      word += static_cast<char>(0xc3 + (*random)() % 16);
      word += static_cast<char>(0x80 + (*random)() % 64);
    }
  }
  return word;
}

// Keys that std::hash makes one number of. In libstdc++ (MurmurHash64A) two words change it alike
// that differ in the highest bit once they are mixed, if the words behind them do, too.
std::vector<std::string> CollidingKeys(size_t bits) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995, kInverse = 0x5f7a0ea7e59b19bd;
  static_assert(kFactor * kInverse == 1);
  std::mt19937 random;
  std::vector<std::array<std::string, 2>> words;
  while (words.size() < 2 * bits) {
    const std::string one = RandomWord(&random);
    uint64_t word = 0;
    std::memcpy(&word, one.data(), sizeof(word));
    const uint64_t mixed = ShiftMix(word * kFactor) * kFactor;
    word = ShiftMix((mixed ^ (uint64_t{1} << 63)) * kInverse) * kInverse;
    std::string other(8, ' ');
    std::memcpy(other.data(), &word, sizeof(word));
    const std::string both = one + other;
    if (both.find('\\') == both.npos && ParseJson('"' + both + '"').ok()) {
      words.push_back({one, other});
    }
  }
  std::vector<std::string> keys(size_t{1} << bits);
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < words.size(); ++j) keys[i] += words[j][i >> (j / 2) & 1];
  }
  return keys;
}

// Else a tool call of 16 MB would keep a thread for most of a minute.
TEST(ParseJson, TakesNoLongerForKeysThatAreChosenToCollide) {
  std::vector<std::string> keys = CollidingKeys(13);
  const std::hash<std::string_view> hash;
  for (const std::string& key : keys) ASSERT_EQ(hash(key), hash(keys[0]));
  const auto least_ms = [&] {
    std::string text = "{\"a\":1,";
    for (const std::string& key : keys) text += '"' + key + "\":0,";
    text += "\"a\":2}";
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 2; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const auto parsed = ParseJson(text, {.as_python = true});
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      EXPECT_TRUE(parsed.ok() && parsed->size() == keys.size() + 1);
      least = std::min(least, took.count());
    }
    return least;
  };
  const double colliding_ms = least_ms();
  for (size_t i = 0; i < keys.size(); ++i) keys[i].replace(0, 8, std::to_string(10'000'000 + i));
  const double other_ms = least_ms();
  EXPECT_LT(colliding_ms, 3 * other_ms);
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
