#include "server/openai/reasoning_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
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
constexpr ReasoningStart kBesideTag = ReasoningStart::kBesideTag;

constexpr ReasoningStart Amid(uint8_t close_bytes = 0) {
  return ReasoningStart(ReasoningStart::kAmid, close_bytes);
}

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
    {"SpaceBesideThePromptsTag", kBesideTag, " Hm </think> Yes", {"Hm", "Yes"}},
    {"LineEndBesideThePromptsTag", kBesideTag, " \n  Hm</think>", {"  Hm", ""}},
    {"GoesOnWithALineEnd", Amid(), "\nStep 2.\n</think>\n\nYes", {"\nStep 2.", "Yes"}},
    {"GoesOnWithATag", Amid(), "<think> b</think>c", {"<think> b", "c"}},
    {"GoesOnWithTheEnd", Amid(), "\n</think>c", {"", "c"}},
    {"ClosesTheTagThatThePromptBegan", Amid(6), "k>\n\nYes", {"", "Yes"}},
    {"DoesNotCloseTheBegunTag", Amid(6), "g> b</think>c", {"g> b", "c"}},
    {"BeginsTheBegunTagAnew", Amid(1), "</think>c", {"", "c"}},
    {"NothingBehindTheBegunTag", Amid(3), "", {}},
    {"NotMuchBehindTheBegunTag", Amid(3), "hi", {"hi", ""}},
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

// --- the same, told from the whole text at once ---

constexpr size_t kMostSpace = 1024;

// What is left of the text behind a tag when the space that is the tag's is cut off.
std::string_view BehindTag(std::string_view text, bool behind_line_end) {
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.size(), text.find_first_not_of(" \t", begin));
    const bool is_end = end == text.size();
    const bool ends_line = !is_end && (text[end] == '\n' || text[end] == '\r');
    const size_t spaces = end - begin + (ends_line ? 1 : 0);
    if (behind_line_end && spaces > kMostSpace) return text.substr(begin);
    if (!ends_line) return text.substr(behind_line_end && !is_end ? begin : end);
    behind_line_end = true;
    begin = end + 1;
  }
}

// Of a thought that is closed: without the space that is the closing tag's. Of more than a KiB, so
// much at a time was told before.
std::string_view InFrontOfTag(std::string_view thought) {
  const size_t words = thought.find_last_not_of(" \t\r\n") + 1;
  const size_t spaces = thought.size() - words;
  const size_t told = spaces == 0 ? words : words + (spaces - 1) / kMostSpace * kMostSpace;
  const size_t line_end = thought.find_first_of("\r\n", told);
  return thought.substr(0, line_end == std::string_view::npos ? told : line_end);
}

Parsed Oracle(ReasoningStart start, std::string_view text) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const auto opens_behind = [&](size_t spaces) {
    return spaces <= kMostSpace && text.substr(spaces).starts_with(kOpen);
  };
  if (start == kBefore) {
    const size_t spaces = std::min(text.size(), text.find_first_not_of(" \t\r\n"));
    if (!opens_behind(spaces)) return {"", std::string(text)};
    text = BehindTag(text.substr(spaces + kOpen.size()), false);
  } else if (start == kInside || start == kBesideTag) {
    text = BehindTag(text, start == kInside);
    const size_t spaces = std::min(text.size(), text.find_first_not_of(" \t"));
    if (opens_behind(spaces)) text = BehindTag(text.substr(spaces + kOpen.size()), false);
  }
  size_t close = text.find(kClose), behind = close + kClose.size();
  if (const std::string_view rest = kClose.substr(start.close_bytes);
      start.close_bytes > 0 && text.starts_with(rest)) {
    close = 0;
    behind = rest.size();
  }
  if (close == std::string_view::npos) return {std::string(text), ""};
  return {std::string(InFrontOfTag(text.substr(0, close))),
          std::string(BehindTag(text.substr(behind), false))};
}

TEST(ReasoningParser, IsWhatTheWholeTextTellsForRandomTextsAndCuts) {
  const std::string parts[] = {"<think>",
                               "</think>",
                               "<",
                               "</",
                               "think>",
                               "k>",
                               "th",
                               "a",
                               " ",
                               "\n",
                               "\r",
                               "\t",
                               std::string(500, ' '),
                               std::string(1023, '\n')};
  std::mt19937_64 rng(testing::RandomSeed(5));
  const auto below = [&](size_t end) { return static_cast<size_t>(rng() % end); };
  for (int step = 0; step < testing::RandomSteps(); ++step) {
    std::string text;
    for (size_t left = below(12); left > 0; --left) text += parts[below(std::size(parts))];
    const ReasoningStart starts[] = {kBefore, kBesideTag, kInside,
                                     Amid(static_cast<uint8_t>(below(8)))};
    const ReasoningStart start = starts[below(std::size(starts))];
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = 1 + below(below(2) == 0 ? 6 : 700);
      pieces.push_back(text.substr(at, bytes));
      at += bytes;
    }
    const Parsed want = Oracle(start, text);
    ASSERT_EQ(Parse(start, {text}), want) << start.place << " " << text;
    ASSERT_EQ(Parse(start, pieces), want) << start.place << " " << text;
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

// A model that says nothing but line ends does not hold its client up for ever, but behind a tag,
// whose they are.
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

// What has begun in letters is text, then; but in front of an opening tag there is none.
TEST(ReasoningParser, AControlTokenIsATagBehindWhatMightHaveBecomeOne) {
  for (const char* const held : {"<", "</", "</think", "<thi"}) {
    ReasoningParser parser(kInside);
    EXPECT_EQ(parser.Add("if a " + std::string(held)).answer, "");
    ASSERT_TRUE(parser.IsTag("</think>")) << held;
    parser.Add("</think>");
    EXPECT_TRUE(parser.is_behind()) << held;
  }
  ReasoningParser at_once(kInside);
  at_once.Add("<thi");
  EXPECT_TRUE(at_once.IsTag("</think>"));
  EXPECT_FALSE(at_once.IsTag("<think>"));
  EXPECT_EQ(at_once.Add("</think>").reasoning, "<thi");
  EXPECT_TRUE(at_once.is_behind());
  ReasoningParser before(kBefore);
  before.Add("<");
  EXPECT_FALSE(before.IsTag("<think>"));
}

// Nothing that stands on a line of its own behind a tag is lost.
TEST(ReasoningParser, MoreThanOneKibOfSpacesBehindATagIsTold) {
  const std::string spaces(3000, ' ');
  EXPECT_EQ(Parse(kBefore, {"<think>a</think>\n" + spaces + "x"}), (Parsed{"a", spaces + "x"}));
  EXPECT_EQ(Parse(kBefore, {"<think>\n" + spaces + "x</think>"}), (Parsed{spaces + "x", ""}));
  EXPECT_EQ(Parse(kInside, {spaces + "x</think>"}), (Parsed{spaces + "x", ""}));
  EXPECT_EQ(Parse(kBefore, {"<think>" + spaces + "x</think>" + spaces + "y"}), (Parsed{"x", "y"}));
  ReasoningParser parser(kInside);
  EXPECT_EQ(parser.Add("a</think>\n" + spaces.substr(0, 1024)).answer, "");
  EXPECT_EQ(parser.Add(" ").answer, spaces.substr(0, 1025));
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
