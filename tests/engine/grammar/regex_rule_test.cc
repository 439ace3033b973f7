#include "engine/grammar/regex_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/regex_grammar.h"
#include "tests/support/cpu_time.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::FindDifference;
using refrain::testing::MakeRegexGrammar;
using refrain::testing::NaiveAcceptor;
using ::testing::HasSubstr;

constexpr RegexText kPlain = RegexText::kPlain, kJson = RegexText::kJsonString;

void ExpectTexts(RegexText text, std::string_view pattern, const std::vector<std::string>& accepted,
                 const std::vector<std::string>& refused) {
  const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, text);
  ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.status();
  for (const std::string& one : accepted) {
    EXPECT_TRUE(Accepts(*grammar, one)) << pattern << " and " << one;
  }
  for (const std::string& one : refused) {
    EXPECT_FALSE(Accepts(*grammar, one)) << pattern << " and " << one;
  }
}

// One pattern for each thing that a pattern may hold; it describes all of the text.
TEST(RegexRuleTest, MatchesWholeTexts) {
  ExpectTexts(kPlain, "abc", {"abc"}, {"", "ab", "abcd", "xabc"});
  ExpectTexts(kPlain, "", {""}, {"a"});
  ExpectTexts(kPlain, "a|bc|", {"a", "bc", ""}, {"abc", "b"});
  ExpectTexts(kPlain, "a*b+c?", {"b", "aabbc"}, {"a", "bcc", "ac"});
  ExpectTexts(kPlain, "a*?b+?c??", {"b", "aabbc"}, {"a", "bcc", "ac"});
  ExpectTexts(kPlain, "a{2}b{1,}c{0,2}", {"aab", "aabbbcc"}, {"ab", "aac", "aabccc"});
  ExpectTexts(kPlain, "a{0}b", {"b"}, {"ab"});
  ExpectTexts(kPlain, "(a|b)*c", {"c", "abbac"}, {"ab", "dc"});
  ExpectTexts(kPlain, "(?:ab)+(?<name>c)", {"abc", "ababc"}, {"aabc"});
  // Python's.
  ExpectTexts(kPlain, "\\A(?P<name>a)b\\Z", {"ab"}, {"Aab", "abZ", "xab"});
  ExpectTexts(kPlain, "a|b\\z", {"a", "b"}, {"bz"});
  ExpectTexts(kPlain, "(a*)*(b?){2,4}", {"", "aaabbbb"}, {"bbbbb", "ba"});
  ExpectTexts(kPlain, ".", {"a", "\xC3\xA9", "\xF0\x9F\x98\x80", "\x0B"},
              {"", "\n", "\r", "\xE2\x80\xA8", "ab", "\xC3"});
}

TEST(RegexRuleTest, MatchesClasses) {
  ExpectTexts(kPlain, "[a-cx]", {"a", "b", "c", "x"}, {"d", "-", ""});
  ExpectTexts(kPlain, "[^a-c]", {"d", "\n", "\xC3\xA9", "\xF4\x8F\xBF\xBF"},
              {"a", "c", "\xED\xA0\x80"});
  ExpectTexts(kPlain, "[^]", {"a", "\n"}, {""});
  ExpectTexts(kPlain, "[-a]", {"-", "a"}, {"b"});
  ExpectTexts(kPlain, "[a\\-c]", {"a", "-", "c"}, {"b"});
  ExpectTexts(kPlain, "[\\d-x]", {"5", "-", "x"}, {"a"});
  ExpectTexts(kPlain, "[a-\\d]", {"5", "-", "a"}, {"b"});
  ExpectTexts(kPlain, "[\\b\\]\\\\^.]", {"\b", "]", "\\", "^", "."}, {"b", "a"});
  ExpectTexts(kPlain, "[^\\u{0}-\\u{10FFFE}]", {"\xF4\x8F\xBF\xBF"}, {"a", "\xF4\x8F\xBF\xBE"});
  ExpectTexts(kPlain, "[^\\W_]", {"a", "0"}, {"_", "-", "\xC3\xA9"});
  ExpectTexts(kPlain, "[\xC3\xA0-\xC3\xBF]", {"\xC3\xA9"}, {"\xC3\x9F", "\xC3"});
  ExpectTexts(kPlain, "\\d\\D\\w\\W\\s\\S", {"1a_- x", "0\nZ\xC3\xA9\xC2\xA0y"},
              {"a1_- x", "11_- x", "1a-- x", "1a__ x", "1a_-xx", "1a_-  "});
  ExpectTexts(kPlain, "\\s*", {" \t\n\v\f\r\xEF\xBB\xBF\xE2\x80\xA8\xE3\x80\x80"},
              {"\xE2\x80\x8B", "\xC2\x85"});
}

TEST(RegexRuleTest, MatchesEscapes) {
  ExpectTexts(kPlain, "\\t\\n\\r\\f\\v\\0\\cJ", {std::string("\t\n\r\f\v\0\n", 7)}, {"tnrfv0J"});
  ExpectTexts(kPlain, "\\x41\\u0042\\u{43}\\u{1F600}\\uD83D\\uDE00",
              {"ABC\xF0\x9F\x98\x80\xF0\x9F\x98\x80"}, {"x41"});
  ExpectTexts(kPlain, "\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\\\/\\-\\@",
              {".*+?()[]{}|^$\\/-@"}, {""});
  // What flag u would refuse, and browsers take without it.
  ExpectTexts(kPlain, "{a}]{,3}x{", {"{a}]{,3}x{"}, {"a"});
}

// A text of that pattern as a part, but where it is anchored.
TEST(RegexRuleTest, MatchesPartsOfStringsWithoutAnchors) {
  ExpectTexts(kJson, "b+", {"b", "abba", "\\nb\\n"}, {"", "a"});
  ExpectTexts(kJson, "^b", {"b", "ba"}, {"ab", ""});
  ExpectTexts(kJson, "b$", {"b", "ab"}, {"ba", ""});
  ExpectTexts(kJson, "^b$", {"b"}, {"ab", "ba", "bb"});
  ExpectTexts(kJson, "\\Ab\\Z", {"b"}, {"ab", "ba", "bb"});
  ExpectTexts(kJson, "^a|b$", {"axx", "xxb", "a", "b"}, {"xa", "bx", "x"});
  ExpectTexts(kJson, "^(a|b)$", {"a", "b"}, {"ab", "xa"});
  ExpectTexts(kJson, "(^a|b)c", {"acx", "xbcx"}, {"xac", "b"});
  ExpectTexts(kJson, "a(b$|c)", {"xab", "xacx"}, {"abx", "a"});
  ExpectTexts(kJson, "^^a$$", {"a"}, {"aa"});
  ExpectTexts(kJson, "^$", {""}, {"a"});
  ExpectTexts(kJson, "", {"", "abc"}, {"\""});
  ExpectTexts(kJson, "a{2,3}", {"aa", "aaaaa", "xaax"}, {"a", "axa"});
  // All of a plain text in any case.
  ExpectTexts(kPlain, "^a|b$", {"a", "b"}, {"ax", "xb"});
  ExpectTexts(kPlain, "(^a|b)c", {"ac", "bc"}, {"xbc"});
}

// What a JSON string cannot hold as it is stands escaped.
TEST(RegexRuleTest, EscapesWhatAStringEscapes) {
  ExpectTexts(kJson, "^\"\\\\\\n$", {"\\\"\\\\\\n", "\\\"\\\\\\u000a"},
              {"\"\\\n", "\\\"\\\\\n", "\\u0022\\\\\\n"});
  ExpectTexts(kJson, "^[^a]$",
              {"b", "\\\"", "\\n", "\\u0001", "\xC3\xA9", "\\u00e9", "\\uD83D\\uDE00"},
              {"a", "\"", "\\", "\n", "\\u0061", "\\ud83d"});
  ExpectTexts(kJson, "^\xC3\xA9/$", {"\xC3\xA9/", "\\u00E9\\/"}, {"e/"});
}

void ExpectRefused(std::string_view pattern, std::string_view message) {
  const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, kPlain);
  EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(std::string(message))) << pattern;
}

TEST(RegexRuleTest, RefusesWhatItDoesNotKnowAndSaysWhere) {
  ExpectRefused("ab(?=c)", "byte 2: look-ahead is not supported");
  ExpectRefused("(?!c)", "byte 0: look-ahead is not supported");
  ExpectRefused("(?<=c)", "look-behind");
  ExpectRefused("a(?<!c)", "byte 1: look-behind");
  ExpectRefused("(?i)a", "byte 0: this kind of group");
  ExpectRefused("(?<1>a)", "no name");
  ExpectRefused("(?P=a)", "this kind of group");
  ExpectRefused("a\\Ab", "does not begin the pattern");
  ExpectRefused("(a)\\1", "byte 3: a back-reference");
  ExpectRefused("\\k<n>", "a back-reference");
  ExpectRefused("a\\b", "byte 1: a word boundary");
  ExpectRefused("\\B", "a word boundary");
  ExpectRefused("\\p{L}", "a Unicode property");
  ExpectRefused("[\\P{L}]", "byte 1: a Unicode property");
  ExpectRefused("\\a", "the escape \\a is not supported");
  ExpectRefused("\\\xC3\xA9", "this escape");
  ExpectRefused("a\\", "byte 1: a backslash before nothing");
  ExpectRefused("\\xg0", "hexadecimal");
  ExpectRefused("\\u00", "hexadecimal");
  ExpectRefused("\\u{110000}", "no code point");
  ExpectRefused("\\u{}", "no code point");
  ExpectRefused("\\ud800", "half of a surrogate pair");
  ExpectRefused("\\ud800\\u0041", "half of a surrogate pair");
  ExpectRefused("\\u{dc00}", "half of a surrogate pair");
  ExpectRefused("\\01", "a back-reference");
  ExpectRefused("*a", "byte 0: a quantifier of nothing");
  ExpectRefused("a**", "byte 2: a quantifier of nothing");
  ExpectRefused("a|+", "byte 2: a quantifier of nothing");
  ExpectRefused("({2})", "byte 1: a quantifier of nothing");
  ExpectRefused("a{3,2}", "byte 1: a quantifier whose bounds are out of order");
  ExpectRefused("a{10001}", "byte 1: a quantifier over 10000");
  ExpectRefused("a{0,99999999999999999999}", "a quantifier over 10000");
  ExpectRefused("(a", "byte 0: a group that is not closed");
  ExpectRefused("a)", "byte 1: a ')' that closes nothing");
  ExpectRefused("[a", "byte 0: a class that is not closed");
  ExpectRefused("[a-", "byte 0: a class that is not closed");
  ExpectRefused("[b-a]", "byte 1: a range of characters that is out of order");
  ExpectRefused("a\xFF", "byte 1: what is not UTF-8");
  ExpectRefused("a^b", "byte 1: a '^' that does not begin");
  ExpectRefused("a?^b", "byte 2: a '^' that does not begin");
  ExpectRefused("a(^b)", "byte 2: a '^' that does not begin");
  ExpectRefused("a$b", "byte 1: a '$' that does not end");
  ExpectRefused("(a|b$)c", "byte 4: a '$' that does not end");
  ExpectRefused("^*", "byte 0: an anchor with a quantifier");
  ExpectRefused("(^a)?b", "byte 0: a group with an anchor and a quantifier");
  ExpectRefused("(a$)+", "byte 0: a group with an anchor and a quantifier");
  ExpectRefused("[]a]", "can never be satisfied");  // an empty class
  ExpectRefused("a[]", "can never be satisfied");
  ExpectRefused(std::string(65537, 'a'), "65537 bytes is longer than 65536");
}

// 64 groups in each other, and not one more.
TEST(RegexRuleTest, BoundsNesting) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '(') + "a" + std::string(depth, ')');
  };
  ExpectTexts(kPlain, nested(64), {"a"}, {""});
  std::string beside;
  for (int i = 0; i < 100; ++i) beside += "(a)";
  ExpectTexts(kPlain, beside, {std::string(100, 'a')}, {""});
  ExpectRefused(nested(65), "byte 64: groups nest deeper than 64");
  ExpectRefused(std::string(60000, '('), "nest deeper");
}

// Counted, of characters of one byte and of more: as many as the pattern says, and states far from
// both bounds share a twin.
TEST(RegexRuleTest, CountsManyRepetitions) {
  for (const RegexText text : {kPlain, kJson}) {
    for (const std::string_view pattern :
         {"^[a-c]{3,500}$", "^[ab\xC3\xA9]{3,500}$", "^.{3,500}$"}) {
      const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, text);
      ASSERT_TRUE(grammar.ok()) << grammar.status();
      const auto state_behind = [&grammar](size_t characters) {
        NaiveAcceptor acceptor(&*grammar);
        EXPECT_TRUE(acceptor.Accept(std::string(characters, 'a')));
        return acceptor.StatesOutsideOfCalls().at(0);
      };
      EXPECT_FALSE(Accepts(*grammar, "aa"));
      EXPECT_TRUE(Accepts(*grammar, "aaa"));
      EXPECT_TRUE(Accepts(*grammar, std::string(500, 'a')));
      EXPECT_FALSE(Accepts(*grammar, std::string(501, 'a')));
      const StateId early = state_behind(10), late = state_behind(436);
      EXPECT_EQ(grammar->twin(early), grammar->twin(late)) << pattern;
      EXPECT_NE(grammar->twin(late), late) << pattern;
      EXPECT_EQ(FindDifference(*grammar, late, grammar->twin(late), "a\xC3\xA9\"\\n",
                               Grammar::kTwinBytes),
                std::nullopt);
      EXPECT_EQ(grammar->twin(state_behind(437)), state_behind(437)) << pattern;
    }
  }
}

// Beside another alternative, and of what may be nothing.
TEST(RegexRuleTest, TwinsOfRepetitionsKnowWhatElseMayCome) {
  for (const std::string_view pattern : {"a{3,500}|bx", "(a{0,500}|b)x", "(a?){100,300}b",
                                         "(a|bb?){70,}", "a{65,}", "a{64,}", "((a|b?)x){90}"}) {
    const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, kPlain);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    const StateId start = grammar->start(grammar->root());
    EXPECT_EQ(FindDifference(*grammar, start, grammar->twin(start), "abx", Grammar::kTwinBytes),
              std::nullopt)
        << pattern;
  }
}

// Patterns whose automata would be huge: refused before they take long.
TEST(RegexRuleTest, BoundsTheTimeOfHostilePatterns) {
  std::string nested = "a";
  for (int i = 0; i < 60; ++i) nested = "(" + nested + "b){16}";
  std::string calls = "a";
  for (int i = 0; i < 60; ++i) calls = "(" + calls + "|b){1,10000}";
  std::string optional;
  for (int i = 0; i < 30000; ++i) optional += "a?";
  std::string words = "x";
  for (std::minstd_rand random(1); words.size() < 65000;) {
    words += '|';
    for (int j = 0; j < 10; ++j)
      words.push_back(static_cast<char>((j % 2 == 0 ? 'a' : 'A') + random() % 26));
  }
  const auto repeated = [](std::string_view text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const std::string& pattern :
       {nested, calls, optional, std::string("a.{1000}b"), std::string("(a|b)*a(a|b){30}"),
        repeated("(a*)*", 2000), repeated("[^a]", 16000), repeated("(.*x|", 64) + repeated(")", 64),
        repeated("(a?){10000}", 20), repeated("(.{0,10000}){0,10000}", 10),
        repeated("(.*a.{20}){2}", 10), words, "(.*(" + words + "))*"}) {
    for (const RegexText text : {kPlain, kJson}) {
      const auto begin = refrain::testing::ThreadCpuTime();
      const absl::StatusOr<Grammar> grammar = MakeRegexGrammar(pattern, text);
      const auto time = refrain::testing::ThreadCpuTime() - begin;
      EXPECT_LT(time, std::chrono::milliseconds(1500) * refrain::testing::kSlowBuildFactor)
          << pattern.substr(0, 40) << ' ' << grammar.status();
    }
  }
}

}  // namespace
}  // namespace refrain::engine
