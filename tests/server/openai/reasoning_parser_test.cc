#include "server/openai/reasoning_parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/random_steps.h"

namespace refrain::server::openai {
namespace {

using engine::ReasoningStart;

struct Parsed {
  std::string reasoning;
  std::string answer;
  friend bool operator==(const Parsed&, const Parsed&) = default;
};

void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "thought [" << parsed.reasoning << "] answer [" << parsed.answer << "]";
}

void Take(const ReasoningParser::Output& output, Parsed* parsed) {
  // The thought is all told before the answer begins.
  EXPECT_TRUE(output.reasoning.empty() || parsed->answer.empty());
  parsed->reasoning += output.reasoning;
  parsed->answer += output.answer;
}

Parsed Parse(ReasoningStart start, const std::vector<std::string>& pieces) {
  ReasoningParser parser(start);
  Parsed parsed;
  for (const std::string& piece : pieces) Take(parser.Add(piece), &parsed);
  Take(parser.Finish(), &parsed);
  return parsed;
}

struct Case {
  const char* name;
  ReasoningStart start;
  const char* generated;
  Parsed want;
};

constexpr ReasoningStart kBefore = ReasoningStart::kBefore;
constexpr ReasoningStart kInside = ReasoningStart::kInside;

const Case kCases[] = {
    {"ModelOpensItsThought",
     kBefore,
     "<think>\nLet me see.\n</think>\n\nParis.\n",
     {"Let me see.", "Paris.\n"}},
    {"PromptOpenedTheThought",
     kInside,
     "\nLet me see.\n</think>\n\nParis.",
     {"Let me see.", "Paris."}},
    {"ModelRepeatsTheOpeningTag", kInside, "<think>\nHm.</think>Yes", {"Hm.", "Yes"}},
    {"SpaceInFrontOfTheTag", kBefore, "\n \t<think>Hm.</think> Yes", {"Hm.", "Yes"}},
    {"NoThought", kBefore, "\n\nParis </think> is", {"", "\n\nParis </think> is"}},
    {"NothingAtAll", kBefore, "", {}},
    {"NothingInAnOpenThought", kInside, "", {}},
    {"SpaceAlone", kBefore, " \n ", {"", " \n "}},
    {"SpaceAloneInAnOpenThought", kInside, " \n ", {}},
    {"EmptyThought", kBefore, "<think>\n\n</think>\n\nYes", {"", "Yes"}},
    {"EmptyThoughtThatThePromptOpened", kInside, "\n</think>\n\nYes", {"", "Yes"}},
    {"NoEndOfTheThought", kBefore, "<think>\nOn and on\n", {"On and on\n", ""}},
    {"NoEndOfAnOpenThought", kInside, "On and on </thin", {"On and on </thin", ""}},
    {"NoAnswer", kBefore, "<think>Hm.</think>\n", {"Hm.", ""}},
    {"BeginningOfATag", kBefore, " <thi", {"", " <thi"}},
    {"BeginningOfATagInAnOpenThought", kInside, " <thi", {" <thi", ""}},
    {"OnlyLooksLikeATag", kBefore, "<thinking>No</think>", {"", "<thinking>No</think>"}},
    {"OnlyLooksLikeATagInAnOpenThought", kInside, "<thin>k</think>x", {"<thin>k", "x"}},
    {"TagsInTheThought",
     kInside,
     "a <think> b <</think </ </t> c </think>d",
     {"a <think> b <</think </ </t> c", "d"}},
    {"TagsInTheAnswer",
     kBefore,
     "<think>a</think>b <think>c</think> d",
     {"a", "b <think>c</think> d"}},
    {"TagInsideOfText", kBefore, "Say <think>a</think>", {"", "Say <think>a</think>"}},
    {"TwoBrackets", kBefore, "<<think>a</think>", {"", "<<think>a</think>"}},
    {"ClosingTagBehindABracket", kInside, "1 <</think>2", {"1 <", "2"}},
    {"CallInTheThought",
     kInside,
     "<tool_call>{}</tool_call>\n</think>\n<tool_call>",
     {"<tool_call>{}</tool_call>", "<tool_call>"}},
    {"SpacesOfFirstAndLastLines",
     kBefore,
     "<think> \n  a \n b. \t\n \n</think>\t\n\n    code\n",
     {"  a \n b. \t", "    code\n"}},
    {"SpacesBehindThePromptsTag", kInside, "  a\r\n</think>  \n", {"  a", ""}},
    {"SpacesAloneInTheThought", kInside, " \n  </think>b", {"", "b"}},
    {"SpacesBesideTags", kBefore, "<think>\ta\t</think>\tb", {"a", "b"}},
    {"SpacesInFrontOfABracket", kInside, "\n  <b> </think>", {"  <b>", ""}},
    {"Characters", kInside, "né é</think>日本", {"né é", "日本"}},
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.generated; }

class ReasoningParserTest : public ::testing::TestWithParam<Case> {};

TEST_P(ReasoningParserTest, FindsTheThoughtInTheWholeText) {
  EXPECT_EQ(Parse(GetParam().start, {GetParam().generated}), GetParam().want);
}

// Every cut in two and in three, and byte by byte.
TEST_P(ReasoningParserTest, FindsItHoweverTheTextIsCut) {
  const std::string text = GetParam().generated;
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(Parse(GetParam().start, bytes), GetParam().want);
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      ASSERT_EQ(Parse(GetParam().start, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}),
                GetParam().want)
          << "cut at " << i << " and " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReasoningParserTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Texts of pieces of tags and spaces; the whole text is parsed as it was when cut.
TEST(ReasoningParser, IsTheSameForRandomTextsAndCuts) {
  constexpr const char* kParts[] = {"<think>", "</think>", "<", "</", "think>",
                                    "th",      "a",        " ", "\n"};
  std::mt19937_64 rng(testing::RandomSeed(5));
  const auto below = [&](size_t end) { return static_cast<size_t>(rng() % end); };
  for (int step = 0; step < testing::RandomSteps(); ++step) {
    std::string text;
    for (size_t parts = below(9); parts > 0; --parts) text += kParts[below(std::size(kParts))];
    const ReasoningStart start = below(2) == 0 ? kBefore : kInside;
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = 1 + below(6);
      pieces.push_back(text.substr(at, bytes));
      at += bytes;
    }
    ASSERT_EQ(Parse(start, pieces), Parse(start, {text})) << text;
  }
}

// What cannot become a tag any more is told with its own piece.
TEST(ReasoningParser, HoldsBackWhatMayBecomeATagAlone) {
  ReasoningParser parser(kBefore);
  EXPECT_EQ(parser.Add(" ").answer, "");
  EXPECT_EQ(parser.Add("<think").answer, "");
  EXPECT_EQ(parser.Add(">\n").reasoning, "");
  EXPECT_EQ(parser.Add("one").reasoning, "one");
  EXPECT_EQ(parser.Add(" two").reasoning, " two");
  EXPECT_EQ(parser.Add(" <").reasoning, "");
  EXPECT_EQ(parser.Add("b").reasoning, " <b");
  EXPECT_EQ(parser.Add("\n</").reasoning, "");
  EXPECT_FALSE(parser.is_behind());
  EXPECT_EQ(parser.Add("think>").reasoning, "");
  EXPECT_TRUE(parser.is_behind());
  EXPECT_EQ(parser.Add("\n").answer, "");
  EXPECT_EQ(parser.Add("three").answer, "three");
  EXPECT_EQ(parser.Add(" <think>").answer, " <think>");
}

// A model that says nothing but line ends does not hold its client up for ever.
TEST(ReasoningParser, HoldsBackOneKibOfSpaceAtMost) {
  const std::string space(1500, '\n');
  ReasoningParser outside(kBefore);
  EXPECT_EQ(outside.Add(space).answer, space);
  EXPECT_FALSE(outside.has_thought());
  ReasoningParser inside(kInside);
  EXPECT_EQ(inside.Add(space).reasoning, "");  // behind the tag
  EXPECT_EQ(inside.Add("a").reasoning, "a");
  EXPECT_EQ(inside.Add(space).reasoning.size(), 1024);
  EXPECT_EQ(inside.Add("</think>").reasoning, "");
  EXPECT_TRUE(inside.is_behind());
}

TEST(ReasoningParser, TellsWhichControlTokensAreItsTags) {
  ReasoningParser before(kBefore);
  EXPECT_TRUE(before.IsTag("<think>"));
  EXPECT_FALSE(before.IsTag("</think>"));
  EXPECT_FALSE(before.IsTag("<|im_end|>"));
  before.Add("<think>a");
  EXPECT_FALSE(before.IsTag("<think>"));
  EXPECT_TRUE(before.IsTag("</think>"));
  before.Add("</think>");
  EXPECT_FALSE(before.IsTag("<think>"));
  EXPECT_FALSE(before.IsTag("</think>"));
  ReasoningParser inside(kInside);
  EXPECT_TRUE(inside.IsTag("<think>"));
  EXPECT_TRUE(inside.IsTag("</think>"));
}

// Bytes that are held back are not looked through again with each piece.
TEST(ReasoningParser, TakesTimeInProportionToTheText) {
  const auto seconds = [](size_t pieces, const std::string& piece) {
    ReasoningParser parser(kInside);
    parser.Add("a");
    const auto begin = std::chrono::steady_clock::now();
    size_t told = 0;
    for (size_t i = 0; i < pieces; ++i) told += parser.Add(piece).reasoning.size();
    EXPECT_GT(told + 2000, pieces * piece.size());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (const std::string& piece : {std::string("\n"), std::string("<"), std::string("</thin")}) {
    EXPECT_LT(seconds(1 << 20, piece), 5) << piece;  // quadratic: hours
  }
}

}  // namespace
}  // namespace refrain::server::openai
