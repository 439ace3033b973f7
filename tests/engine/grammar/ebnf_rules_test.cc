#include "engine/grammar/ebnf_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/grammar/ebnf_grammar.h"
#include "tests/engine/grammar/naive_acceptor.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::FindDifference;
using refrain::testing::MakeEbnfGrammar;
using ::testing::HasSubstr;

void ExpectTexts(std::string_view grammar, const std::vector<std::string>& accepted,
                 const std::vector<std::string>& refused) {
  const absl::StatusOr<Grammar> made = MakeEbnfGrammar(grammar);
  ASSERT_TRUE(made.ok()) << grammar << "\n" << made.status();
  for (const std::string& text : accepted) {
    EXPECT_TRUE(Accepts(*made, text)) << grammar << "\n" << text;
  }
  for (const std::string& text : refused) {
    EXPECT_FALSE(Accepts(*made, text)) << grammar << "\n" << text;
  }
}

TEST(EbnfRulesTest, TakesSequencesAlternativesAndGroups) {
  ExpectTexts(R"(root ::= "abc")", {"abc"}, {"", "ab", "abcd", "xabc"});
  ExpectTexts(R"(root ::= "a" "b" | "c")", {"ab", "c"}, {"a", "ac", "abc"});
  ExpectTexts(R"(root ::= ("a" | "b") ("c" | "d"))", {"ac", "bd"}, {"ab", "a"});
  ExpectTexts(R"(root ::= "a" ("b" ("c" | ("d"))))", {"abc", "abd"}, {"ab"});
  ExpectTexts(R"(root ::= "a" | )", {"a", ""}, {"aa"});
  ExpectTexts(R"(root ::= | "a" | "b")", {"a", "b", ""}, {"ab"});
  ExpectTexts(R"(root ::= "a" () "b" (|"c"))", {"ab", "abc"}, {"a"});
  ExpectTexts(R"(root ::= "")", {""}, {"a"});
  ExpectTexts("root ::=", {""}, {"a"});
}

TEST(EbnfRulesTest, TakesRepetitions) {
  ExpectTexts(R"(root ::= "a"* "b"+ "c"?)", {"b", "aabbc"}, {"", "a", "bcc", "ac"});
  ExpectTexts(R"(root ::= "ab"{2})", {"abab"}, {"ab", "ababab", "abb"});
  ExpectTexts(R"(root ::= "a"{2,} "b"{,2} "c"{1,3})", {"aac", "aaabbccc"}, {"ac", "aabbb", "aa"});
  ExpectTexts("root ::= [ab]{ 1 , 2 } \"c\" {2}", {"acc", "bbcc"}, {"abacc", "ac"});
  ExpectTexts(R"(root ::= "a"{0} "b"{0,0} "c")", {"c"}, {"ac", "bc"});
  ExpectTexts(R"(root ::= ("a" | "b" "c")+)", {"a", "bc", "abca"}, {"", "ab"});
  ExpectTexts(R"(root ::= (("a"? "b"*)+ "c")*)", {"", "c", "abbac"}, {"a", "ca"});
  ExpectTexts(R"(root ::= ("a"*)* ("b"?){2,4} (("c"+)?)+)", {"", "aabbbbcc"}, {"bbbbb"});
  ExpectTexts(R"(root ::= "ab" +)", {"ab", "abab"}, {"abb"});
}

TEST(EbnfRulesTest, TakesClasses) {
  ExpectTexts("root ::= [a-cx]", {"a", "b", "c", "x"}, {"d", "-", ""});
  ExpectTexts("root ::= [b-b]", {"b"}, {"a", "c"});
  ExpectTexts("root ::= [^a-c]", {"d", "\n", "\xC3\xA9", "\xF4\x8F\xBF\xBF"},
              {"a", "c", "\xED\xA0\x80", "\xC3"});
  ExpectTexts("root ::= [-a] [a-] [--0] [^-]", {"--.b", "aa-x"}, {"b-.b", "---.-"});
  ExpectTexts(R"(root ::= [\]\[\\\-^] [a\-c])", {"]a", "[-", "\\c", "-a", "^a"}, {"ab", "]b"});
  ExpectTexts(R"(root ::= ["'(|)*#.])", {"\"", "'", "(", "|", "#", "."}, {"a", "\\"});
  ExpectTexts("root ::= [\xC3\xA0-\xC3\xBF]", {"\xC3\xA9"}, {"\xC3\x9F", "\xC3"});
  ExpectTexts(R"(root ::= [\x00-\U0010FFFE]*)", {"a\n\xC3\xA9"}, {"\xF4\x8F\xBF\xBF"});
  ExpectTexts("root ::= . .", {"ab", "\n\r", "\xE2\x80\xA8\xF0\x9F\x98\x80"}, {"a", "\xC3\xA9"});
}

TEST(EbnfRulesTest, TakesEscapes) {
  ExpectTexts(R"(root ::= "\n\r\t\\\"\'\[\]\-")", {"\n\r\t\\\"'[]-"}, {"nrt"});
  ExpectTexts(R"(root ::= "\a\b\e\f\v\0")", {std::string("\a\b\x1B\f\v\0", 6)}, {"abefv0"});
  // Two digits and no more: what follows is a character of its own.
  ExpectTexts(R"(root ::= "\x41B\u00e9\U0001F600\uD83D\uDE00")",
              {"AB\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80"}, {"A"});
  ExpectTexts(R"(root ::= "\xe9" [\xE9\u4e00-\u9fff])",
              {"\xC3\xA9\xC3\xA9", "\xC3\xA9\xE4\xBA\xBA"}, {"\xE9\xE9"});
  ExpectTexts(R"(root ::= "\.\*\+\?\(\)\{\}\|\^\$\/" [\^\$\.])", {".*+?(){}|^$/."}, {""});
  ExpectTexts("root ::= \"\xC3\xA9 # | ) \"", {"\xC3\xA9 # | ) "}, {""});
}

// A rule ends where the next one begins, as XGrammar has it. All that llama.cpp reads is read as it
// reads it: there a line end outside of parentheses and not behind `|` ends a rule.
TEST(EbnfRulesTest, LineEndsSeparateAndNothingElse) {
  ExpectTexts("root ::= a\na ::= \"x\"", {"x"}, {""});
  ExpectTexts("root ::= a # behind\na ::= \"x\" #\r\nb ::= \"y\"", {"x"}, {""});
  ExpectTexts("\n\n# first\n  root ::= a # behind\n\n# ---\n\ta ::= \"x\" # \"y\"\n#", {"x"},
              {"xy"});
  ExpectTexts("root ::=\r\n  \"a\" |\r\n  b |\r\n  (\r\n\"c\"\r\n)\r\nb ::= \"d\"\r\n",
              {"a", "c", "d"}, {"ac"});
  ExpectTexts("root ::= \"a\"\n  | \"b\"\n  \"c\"\n\n  | d\nd ::= \"d\"", {"a", "bc", "d"}, {"b"});
  ExpectTexts("root ::= (\n # nothing\n \"a\" # x )\n \"b\"\n)*\n", {"", "abab"}, {"a"});
  ExpectTexts("root ::= \"a\"\n{2}\r \r\"b\"", {"aab"}, {"ab"});
  ExpectTexts("root\n::= a a\na ::= \"x\"", {"xx"}, {"x"});
  ExpectTexts("root::=a|b\na::=\"x\"\nb::=\"y\"", {"x", "y"}, {"xy"});
  ExpectTexts("root ::= \"a\"\rb ::= \"c\"\r", {"a"}, {"ab"});
}

TEST(EbnfRulesTest, NamesHaveLettersDigitsAndDashes) {
  ExpectTexts("a-b ::= \"x\"\nA_1 ::= \"y\"\n0 ::= \"z\"\nroot ::= a-b A_1 0 true\ntrue ::= \"t\"",
              {"xyzt"}, {""});
  ExpectTexts("root ::= a.b\na ::= \"x\"\nb ::= \"y\"", {"x-y"}, {"xy"});
}

TEST(EbnfRulesTest, RulesCallEachOther) {
  ExpectTexts(R"ebnf(root ::= "(" root ")" | "x")ebnf", {"x", "((x))"}, {"((x)", "()"});
  ExpectTexts("root ::= [ab] root | \"\"", {"", "abba"}, {"c"});
  ExpectTexts("root ::= a\na ::= \"x\" b?\nb ::= \"y\" a", {"x", "xyx"}, {"xy"});
  ExpectTexts("root ::= \"x\"\nunused ::= unused \"y\" | other\nother ::= unused", {"x"}, {"y"});
}

// Which XGrammar takes and llama.cpp does not.
TEST(EbnfRulesTest, RulesMayBeginWithThemselves) {
  ExpectTexts(R"(root ::= root "+" [0-9] | [0-9])", {"1", "1+2+3"}, {"", "+1", "1+"});
  ExpectTexts(R"(root ::= "x" | root "a" | root "b" root)", {"x", "xaa", "xbx", "xabxabx"},
              {"a", "xb", "bx"});
  ExpectTexts(R"(root ::= (root ",")? "x")", {"x", "x,x", "x,x,x"}, {",x", "x,"});
  ExpectTexts(R"(root ::= (root | "y" | "") "x")", {"x", "yx", "yxx", "xxx"}, {"", "y", "xy"});
  ExpectTexts(R"(root ::= root | "x" | root)", {"x"}, {"", "xx"});
  ExpectTexts(R"(root ::= root root | "x")", {"x", "xx", "xxxx"}, {"", "y"});
  ExpectTexts(
      "root ::= sum\nsum ::= sum [-+] product | product\nproduct ::= product [*/] atom | "
      "atom\natom ::= [0-9]+ | \"(\" sum \")\"",
      {"1", "1+2*3", "(1-2)*(3)/4", "12+(3)"}, {"1+", "*1", "(1", "1+*2"});
}

void ExpectRefused(std::string_view grammar, std::string_view message) {
  const absl::StatusOr<Grammar> made = MakeEbnfGrammar(grammar);
  ASSERT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << grammar;
  EXPECT_THAT(std::string(made.status().message()), HasSubstr(std::string(message))) << grammar;
}

TEST(EbnfRulesTest, SaysWhereAndWhatWasExpected) {
  ExpectRefused("root ::= \"a", "line 1, column 10: the literal is not closed: expected '\"'");
  ExpectRefused("root ::= \"a\nb\"", "line 1, column 10: the literal is not closed");
  ExpectRefused("root ::= \"\\", "line 1, column 11: the escape is not known");
  ExpectRefused("root ::= \"\\q\"", "line 1, column 11: the escape is not known: expected \\n");
  ExpectRefused("root ::= [\\d]", "line 1, column 11: the escape is not known");
  ExpectRefused("root ::= \"\\x4\"", "column 11: expected 2 hexadecimal digits");
  ExpectRefused("root ::= \"\\u00g0\"", "column 11: expected 4 hexadecimal digits");
  ExpectRefused("root ::= \"\\U0001\"", "column 11: expected 8 hexadecimal digits");
  ExpectRefused("root ::= \"\\U00110000\"", "column 11: no character has this code");
  ExpectRefused("root ::= \"\\ud800\"", "column 11: half of a surrogate pair");
  ExpectRefused("root ::= \"\\ud800\\u0041\"", "column 11: half of a surrogate pair");
  ExpectRefused("root ::= [\\udc00]", "column 11: half of a surrogate pair");
  ExpectRefused("root ::= \"\xC3\xA9\xFF\"", "line 1, column 12: what stands there is not UTF-8");
  ExpectRefused("\n root ::= [a\n]", "line 2, column 11: the class is not closed: expected ']'");
  ExpectRefused("root ::= [a-", "the class is not closed");
  ExpectRefused("root ::= []", "column 10: expected a character in the class");
  ExpectRefused("root ::= [^]", "column 10: expected a character in the class");
  ExpectRefused("root ::= [b-a]", "column 11: the range of characters is out of order");
  ExpectRefused("root ::= \"a\"{", "column 13: expected {m}, {m,}, {,n} or {m,n}");
  ExpectRefused("root ::= \"a\"{}", "column 13: expected {m}, {m,}, {,n} or {m,n}");
  ExpectRefused("root ::= \"a\"{,}", "column 13: expected {m}");
  ExpectRefused("root ::= \"a\"{1;2}", "column 13: expected {m}");
  ExpectRefused("root ::= \"a\"{-1}", "column 13: expected {m}");
  ExpectRefused("root ::= \"a\"{3,2}", "column 13: the bounds of the quantifier are out of order");
  ExpectRefused("root ::= \"a\"{10001}", "column 13: a quantifier over 10000");
  ExpectRefused("root ::= \"a\"{0,99999999999999999999}", "a quantifier over 10000");
  ExpectRefused("root ::= *", "column 10: expected something to repeat before '*'");
  ExpectRefused("root ::= \"a\" | {2}", "column 16: expected something to repeat before '{'");
  ExpectRefused("root ::= (+ \"a\")", "column 11: expected something to repeat before '+'");
  ExpectRefused("root ::= \"a\"*?", "column 14: a quantifier of a quantifier");
  ExpectRefused("root ::= \"a\" )", "column 14: this ')' closes nothing");
  ExpectRefused("root ::= (\"a\" | \"b\"",
                "column 10: the parenthesis is not closed: expected ')'");
  ExpectRefused("root ::= (\"a\"\nb ::= \"c\")",
                "line 1, column 10: the parenthesis is not closed");
  ExpectRefused("root ::= \"a\" ;", "column 14: expected a literal (\"...\"), a class ([...])");
  ExpectRefused("root ::= \"a\"\n\n   \xC3\xA9", "line 3, column 4: expected a literal");
  ExpectRefused("root ::= 'a'", "column 10: expected '\"': literals stand in double quotes");
  ExpectRefused("root ::= \"a\" b ::= \"c\"", "column 14: expected a line of its own");
  ExpectRefused("root ::= \"a\"\nb.c ::= \"d\"", "line 2, column 3: expected a line of its own");
  ExpectRefused("root = \"a\"", "line 1, column 1: expected a rule, 'name ::= ...'");
  ExpectRefused("root ::= \"a\"\nb := \"c\"", "line 2, column 3: expected '::=' behind");
  ExpectRefused("::= \"a\"", "line 1, column 1: expected a rule, 'name ::= ...'");
  ExpectRefused("root ::= \"a\"\n::= \"b\"", "line 2, column 1: expected a rule's name before");
  ExpectRefused("\"a\"", "line 1, column 1: expected a rule, 'name ::= ...'");
}

TEST(EbnfRulesTest, NamesRulesThatAreWrong) {
  ExpectRefused("", "line 1, column 1: expected a rule 'root' somewhere");
  ExpectRefused("# nothing", "expected a rule 'root' somewhere");
  ExpectRefused("start ::= \"a\"", "expected a rule 'root' somewhere");
  ExpectRefused("root ::= a b\na ::= \"x\"", "line 1, column 12: expected a rule 'b' somewhere");
  ExpectRefused("a ::= b\nroot ::= \"x\"", "line 1, column 7: expected a rule 'b' somewhere");
  ExpectRefused("root ::= a\n a ::= \"x\"\n\na ::= \"y\"",
                "line 4, column 1: the rule 'a' is there already, at line 2, column 2");
  ExpectRefused("root ::= " + std::string(1000, 'n'), std::string(64, 'n') + "...'");
  // What comes back to itself behind nothing, or behind what may be nothing.
  const std::string recursion = "grammar recurses without end: the rule ";
  ExpectRefused("root ::= a\n\na ::= b \"x\"\nb ::= a | \"y\"", recursion + "'a' of line 3 calls");
  ExpectRefused("root ::= ws root \"x\" | \"y\"\nws ::= \" \"*", recursion + "'root' of line 1");
  ExpectRefused("root ::= (root \"x\")* \"y\"", recursion + "'root' of line 1");
  ExpectRefused("root ::= \"y\" | (root \"x\" | \"z\"){20}", recursion + "'root' of line 1");
}

TEST(EbnfRulesTest, SaysWhatIsNotSupported) {
  for (const char* lark : {"start: \"a\"", "?start: x\nx: \"a\"", "root: \"a\"",
                           "%import common.WS", "// a comment\nstart: \"a\"", "!start: \"a\""}) {
    ExpectRefused(lark, "line 1, column 1: expected a rule, 'name ::= ...' (Lark's");
  }
  ExpectRefused("root ::= \"a\"\nb: \"c\"", "line 2, column 2: expected '::='");
  for (const char* token : {"<think>", "<[12]>", "!<think>", "!<[12]>"}) {
    ExpectRefused("root ::= \"a\" " + std::string(token) + " .*",
                  "line 1, column 14: tokens (<think>, <[12]>) are not supported");
  }
  ExpectRefused("root ::= \"a\" (= \"b\")", "column 14: look-ahead, '(=', is not supported");
  ExpectRefused("root ::= TagDispatch((\"a\", b))\nb ::= \"c\"",
                "column 26: XGrammar's functions, as Token(1, 2), are not supported");
  ExpectRefused("root ::= Regex(\"a+\")", "column 10: XGrammar's function Regex is not supported");
  ExpectRefused("root[capture] ::= \"a\"", "line 1, column 1: expected a rule");
}

TEST(EbnfRulesTest, RefusesWhatNothingSatisfies) {
  const std::string message = "grammar can never be satisfied";
  ExpectRefused("root ::= \"a\" root", message);
  ExpectRefused("root ::= root \"a\"", message);
  ExpectRefused("root ::= a\na ::= \"x\" b\nb ::= \"y\" a", message);
  ExpectRefused("root ::= [^\\x00-\\U0010FFFF]", message);
  // But an alternative that nothing satisfies may be there.
  ExpectTexts("root ::= \"a\" root | \"b\" | c\nc ::= \"c\" c", {"b", "ab"}, {"c", ""});
}

// 128 parentheses in each other, and not one more.
TEST(EbnfRulesTest, BoundsNesting) {
  const auto nested = [](size_t depth) {
    return "root ::= " + std::string(depth, '(') + "\"a\"" + std::string(depth, ')');
  };
  ExpectTexts(nested(128), {"a"}, {""});
  ExpectRefused(nested(129), "line 1, column 138: parentheses nest deeper than 128");
  ExpectRefused("root ::= " + std::string(100000, '('), "nest deeper");
  std::string beside = "root ::= ";
  for (int i = 0; i < 200; ++i) beside += "(\"a\")";
  ExpectTexts(beside, {std::string(200, 'a')}, {""});
  ExpectRefused("root ::= \"" + std::string(131072, 'a') + "\"", "is longer than 131072");
  ExpectRefused("root ::= \"" + std::string(131000, 'a') + "\"",
                "grammar takes more than 65536 states");
}

// Those in each other would double what is drawn with each.
TEST(EbnfRulesTest, LoopsInEachOtherTakeOneCopy) {
  std::string grammar = "\"ab\"";
  for (int i = 0; i < 100; ++i) grammar = "(" + grammar + (i % 2 == 0 ? ")+" : ")*");
  const absl::StatusOr<Grammar> made = MakeEbnfGrammar("root ::= " + grammar);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_LT(made->num_states(), 10u);
  EXPECT_TRUE(Accepts(*made, "ababab"));
  EXPECT_FALSE(Accepts(*made, "aba"));
}

TEST(EbnfRulesTest, MayCountTo10000) {
  ExpectTexts(R"(root ::= "a"{10000} | "b"{3,10000})", {std::string(10'000, 'a'), "bbb"},
              {std::string(9'999, 'a'), std::string(10'001, 'b')});
}

// As many as the grammar says, and states far from both bounds share a twin.
TEST(EbnfRulesTest, CountsManyRepetitions) {
  for (const std::string_view part : {"[a-c]", "\"a\"", "[^x]", "(\"a\" | \"bb\"?)", "letter"}) {
    const std::string grammar =
        "root ::= " + std::string(part) + "{3,500}\nletter ::= [a-z] | \"\xC3\xA9\"";
    const absl::StatusOr<Grammar> made = MakeEbnfGrammar(grammar);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(Accepts(*made, "aaa")) << part;
    EXPECT_TRUE(Accepts(*made, std::string(500, 'a'))) << part;
    EXPECT_FALSE(Accepts(*made, std::string(501, 'a'))) << part;
    EXPECT_EQ(Accepts(*made, "aa"), part.find('?') != part.npos) << part;
    size_t num_twins = 0;
    for (size_t i = 0; i < made->num_states(); ++i) {
      const auto state = static_cast<StateId>(i);
      num_twins += made->twin(state) != state ? 1 : 0;
    }
    EXPECT_GT(num_twins, 300u) << part;
    EXPECT_LT(made->num_states(), 1000u) << part << ": its states are there once";
    const StateId start = made->start(made->root());
    EXPECT_EQ(FindDifference(*made, start, made->twin(start), "abx", Grammar::kTwinBytes),
              std::nullopt)
        << part;
  }
}

}  // namespace
}  // namespace refrain::engine
