#include "engine/stop_criteria.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/allocated_bytes.h"

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;

struct Outcome {
  std::string shown;  // what a consumer saw, in the end
  size_t released = 0;
  bool ended = false;
  ChoiceEnd end;
  size_t accepted = 0;
};

std::shared_ptr<const StopRules> Rules(const StopParams& params,
                                       const std::vector<TokenId>& ends = {}) {
  return std::make_shared<const StopRules>(params, params.max_tokens, ends);
}

// Feeds pieces as tokens 0, 1, 2, ...
Outcome Feed(const std::shared_ptr<const StopRules>& rules,
             const std::vector<std::string>& pieces) {
  StopCriteria criteria(rules);
  Outcome outcome;
  std::vector<TokenEvent> released;
  for (size_t i = 0; i < pieces.size() && !outcome.ended; ++i) {
    ++outcome.accepted;
    if (const auto end =
            criteria.Accept({.token = TokenId{static_cast<int32_t>(i)}}, pieces[i], &released)) {
      outcome.ended = true;
      outcome.end = *end;
    }
  }
  if (!outcome.ended) criteria.ReleaseAll(&released);
  outcome.released = released.size();
  int32_t last = -1;
  for (const TokenEvent& event : released) {
    EXPECT_GT(static_cast<int32_t>(event.token), last) << "out of order";
    last = static_cast<int32_t>(event.token);
    const std::string& piece = pieces[static_cast<size_t>(event.token)];
    outcome.shown += piece.substr(
        0, static_cast<size_t>(event.shown_bytes.value_or(static_cast<int32_t>(piece.size()))));
  }
  return outcome;
}

// All ways to cut a text into tokens.
std::vector<std::vector<std::string>> AllSplits(const std::string& text) {
  std::vector<std::vector<std::string>> splits;
  for (uint32_t cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
    std::vector<std::string> pieces = {text.substr(0, 1)};
    for (size_t i = 1; i < text.size(); ++i) {
      if ((cuts >> (i - 1)) & 1) pieces.emplace_back();
      pieces.back() += text[i];
    }
    splits.push_back(pieces);
  }
  return splits;
}

TEST(StopCriteriaTest, FindsAStopStringHoweverItIsSplit) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"STOP"}});
  for (const auto& pieces : AllSplits("ab STO STOP cd")) {
    const Outcome outcome = Feed(rules, pieces);
    EXPECT_EQ(outcome.shown, "ab STO ");
    ASSERT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.end.reason, FinishReason::kStop);
    EXPECT_EQ(outcome.end.matched_stop, "STOP");
  }
}

// Clients that ask for token ids want all that was generated.
TEST(StopCriteriaTest, TellsTheTokensThatTheStopStringHides) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"STOP"}});
  for (const auto& pieces : AllSplits("ab STO STOP")) {
    const Outcome outcome = Feed(rules, pieces);
    ASSERT_EQ(outcome.released + outcome.end.hidden_tokens.size(), outcome.accepted);
    auto token = static_cast<int32_t>(outcome.released);
    for (const TokenId hidden : outcome.end.hidden_tokens) EXPECT_EQ(hidden, TokenId{token++});
  }
  const auto shown = Rules({.max_tokens = 100, .stop = {"STOP"}, .include_stop_in_output = true});
  EXPECT_TRUE(Feed(shown, {"a", "ST", "OP"}).end.hidden_tokens.empty());
}

TEST(StopCriteriaTest, IncludesTheStopStringWhenAsked) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"aab"}, .include_stop_in_output = true});
  for (const auto& pieces : AllSplits("xaaaabyy")) {
    EXPECT_EQ(Feed(rules, pieces).shown, "xaaaab");
  }
}

TEST(StopCriteriaTest, EarliestEndWinsThenTheLongest) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"cde", "bcd", "d", "abcdefg"}});
  for (const auto& pieces : AllSplits("xabcdefgh")) {
    const Outcome outcome = Feed(rules, pieces);
    EXPECT_EQ(outcome.shown, "xa");
    EXPECT_EQ(outcome.end.matched_stop, "bcd");
  }
}

// Scenario: "ab" may become "abc"; "x" shows that it does not.
TEST(StopCriteriaTest, HoldsBackOnlyWhatMayBecomeAMatch) {
  StopCriteria criteria(Rules({.max_tokens = 100, .stop = {"abc"}}));
  std::vector<TokenEvent> released;
  const auto feed = [&](const char* piece) {
    EXPECT_FALSE(criteria.Accept({}, piece, &released).has_value());
    return released.size();
  };
  EXPECT_EQ(feed("xa"), 0u);
  EXPECT_EQ(feed("b"), 0u);
  EXPECT_EQ(feed("ab"), 2u);  // "xa" and "b" can be shown, "ab" not yet
  EXPECT_EQ(feed("x"), 4u);
  EXPECT_EQ(feed("y"), 5u);
}

TEST(StopCriteriaTest, EndTokenEndsAndReleasesWhatWasHeld) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"abc"}}, {TokenId{2}});
  const Outcome outcome = Feed(rules, {"a", "b", "</s>", "c"});
  EXPECT_EQ(outcome.shown, "ab");
  EXPECT_EQ(outcome.end.stop_token, TokenId{2});
  EXPECT_EQ(outcome.accepted, 3u);
}

TEST(StopCriteriaTest, MaxTokensEndsWithLength) {
  const auto rules = Rules({.max_tokens = 2, .stop = {"abc"}});
  const Outcome outcome = Feed(rules, {"a", "b", "c"});
  EXPECT_EQ(outcome.shown, "ab");
  EXPECT_EQ(outcome.end.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.accepted, 2u);
}

TEST(StopCriteriaTest, StopStringBeatsMaxTokensInTheSameToken) {
  const Outcome outcome = Feed(Rules({.max_tokens = 2, .stop = {"b"}}), {"a", "b", "c"});
  EXPECT_EQ(outcome.end.reason, FinishReason::kStop);
}

// As vLLM has it: min_tokens tokens come, then a stop string may end.
TEST(StopCriteriaTest, NothingEndsWithinMinTokens) {
  const auto rules = Rules({.max_tokens = 100, .min_tokens = 3, .stop = {"b"}}, {TokenId{0}});
  const Outcome outcome = Feed(rules, {"a", "b", "b", "c", "b", "d"});
  EXPECT_EQ(outcome.shown, "abbc");
  EXPECT_EQ(outcome.accepted, 5u);
  // One that began within them counts where it ends.
  const auto longer = Rules({.max_tokens = 100, .min_tokens = 3, .stop = {"bc"}});
  EXPECT_EQ(Feed(longer, {"b", "c", "b", "c", "d"}).shown, "bc");
}

TEST(StopRulesTest, AnIgnoredEndOfGenerationIsNoEndButComesLate) {
  const StopParams params{.ignore_eos = true, .stop_token_ids = {TokenId{7}, TokenId{3}}};
  const std::vector<TokenId> end_of_generation = {TokenId{5}, TokenId{3}};
  const StopRules ignoring(params, 10, end_of_generation);
  EXPECT_THAT(ignoring.end_tokens, ElementsAre(TokenId{3}, TokenId{7}));
  EXPECT_THAT(ignoring.late_tokens, ElementsAre(TokenId{3}, TokenId{5}, TokenId{7}));
  const StopRules heeding({.stop_token_ids = {TokenId{7}}}, 10, end_of_generation);
  EXPECT_THAT(heeding.end_tokens, ElementsAre(TokenId{3}, TokenId{5}, TokenId{7}));
  EXPECT_THAT(heeding.late_tokens, ElementsAre(TokenId{3}, TokenId{5}, TokenId{7}));
}

TEST(StopCriteriaTest, TokensWithoutBytesPass) {
  const Outcome outcome = Feed(Rules({.max_tokens = 100, .stop = {"ab"}}), {"", "a", "", "b"});
  EXPECT_EQ(outcome.shown, "");
  EXPECT_TRUE(outcome.ended);
}

// Hidden control tokens add nothing to the text: what is around them joins.
TEST(StopCriteriaTest, FindsAStopStringAroundHiddenTokens) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"STOP"}});
  const Outcome outcome = Feed(rules, {"", "xS", "", "TO", "", "P", ""});
  EXPECT_EQ(outcome.shown, "x");
  EXPECT_EQ(outcome.accepted, 6u);
  EXPECT_EQ(outcome.released, 2u);
  EXPECT_THAT(outcome.end.hidden_tokens,
              ElementsAre(TokenId{2}, TokenId{3}, TokenId{4}, TokenId{5}));
  const auto shown = Rules({.max_tokens = 100, .stop = {"STOP"}, .include_stop_in_output = true});
  const Outcome whole = Feed(shown, {"xS", "", "TO", "P", ""});
  EXPECT_EQ(whole.shown, "xSTOP");
  EXPECT_EQ(whole.released, 4u);
  EXPECT_TRUE(whole.end.hidden_tokens.empty());
}

// Many long stop strings that share long beginnings: time in proportion to bytes.
TEST(StopCriteriaTest, ManyLongStopStringsStayCheap) {
  std::vector<std::string> strings;
  for (int i = 0; i < 200; ++i) {
    strings.push_back(std::string(2000, 'a') + std::to_string(i) + std::string(2000, 'b'));
  }
  StopCriteria criteria(Rules({.max_tokens = 1 << 30, .stop = std::move(strings)}));
  std::vector<TokenEvent> released;
  for (int i = 0; i < 100000; ++i) {
    ASSERT_FALSE(criteria.Accept({}, "aaaaaaaaaa", &released).has_value());
  }
  EXPECT_EQ(released.size(), 100000u - 200);
}

// Against a naive search over the whole output.
TEST(StopCriteriaTest, AgreesWithNaiveSearchOnRandomTexts) {
  std::mt19937 random(7);
  const auto word = [&](size_t max_size) {
    std::string text;
    for (size_t n = 1 + random() % max_size; n > 0; --n) {
      text += static_cast<char>('a' + random() % 2);
    }
    return text;
  };
  int ended = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> strings;
    for (size_t n = 1 + random() % 3; n > 0; --n) strings.push_back(word(6));
    const StopParams params{.max_tokens = 1000, .stop = std::move(strings)};
    std::vector<std::string> pieces;
    std::string text;
    for (size_t n = 1 + random() % 10; n > 0; --n) {
      pieces.push_back(word(3));
      text += pieces.back();
    }
    size_t best_end = std::string::npos;
    size_t best_begin = 0;
    for (const std::string& stop : params.stop) {
      const size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      const size_t end = begin + stop.size();
      if (end < best_end || (end == best_end && begin < best_begin)) {
        best_end = end;
        best_begin = begin;
      }
    }
    const Outcome outcome = Feed(Rules(params), pieces);
    ASSERT_EQ(outcome.ended, best_end != std::string::npos);
    ASSERT_EQ(outcome.shown, outcome.ended ? text.substr(0, best_begin) : text);
    ended += outcome.ended ? 1 : 0;
  }
  EXPECT_GT(ended, 500);
  EXPECT_LT(ended, 2900);
}

// Scenario: the second one begins inside the first, which ends too early to count.
TEST(StopCriteriaTest, FindsAStringBehindOneThatDidNotCount) {
  const auto rules = Rules({.max_tokens = 100, .min_tokens = 3, .stop = {"aba", "xyz"}});
  const Outcome outcome = Feed(rules, {"a", "b", "a", "b", "a", "b"});
  EXPECT_EQ(outcome.accepted, 5u);
  EXPECT_EQ(outcome.shown, "ab");
}

// Of a choice that waits to run: there may be thousands.
TEST(StopCriteriaTest, NothingIsAllocatedBeforeTheFirstToken) {
  const auto rules = Rules({.max_tokens = 100, .stop = {"abc"}});
  std::vector<StopCriteria> criteria;
  criteria.reserve(1000);
  const size_t before = testing::AllocatedBytes();
  for (int i = 0; i < 1000; ++i) criteria.emplace_back(rules);
  EXPECT_LT(testing::AllocatedBytes() - before, 1000u);
}

}  // namespace
}  // namespace refrain::engine
