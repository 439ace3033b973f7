#include "engine/best_of.h"

#include <gtest/gtest.h>

#include <vector>

namespace refrain::engine {
namespace {

Request BestOfRequest(int32_t n, int32_t best_of) {
  Request request;
  request.n = n;
  request.best_of = best_of;
  return request;
}

void Say(BestOf* best_of, int32_t sequence, const std::vector<float>& logprobs) {
  for (const float logprob : logprobs) {
    best_of->Count(sequence, logprob);
    TokenEvent event;
    event.choice = sequence;
    event.token = TokenId{sequence};
    event.logprob = {event.token, logprob, 1};
    best_of->output(sequence)->push_back(event);
  }
}

// Sums would prefer the short one, -3 over -4.
TEST(BestOfTest, RanksByMeanLogprobPerToken) {
  BestOf best_of(BestOfRequest(2, 3));
  Say(&best_of, 0, {-1.5, -1.5});
  Say(&best_of, 1, {-9});
  Say(&best_of, 2, {-1, -1, -1, -1});
  EXPECT_FALSE(best_of.End(1, {.choice = 1, .reason = FinishReason::kStop}));
  EXPECT_FALSE(best_of.End(2, {.choice = 2, .reason = FinishReason::kLength}));
  EXPECT_TRUE(best_of.End(0, {.choice = 0, .reason = FinishReason::kStop}));
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  best_of.Output(&tokens, &ends);
  ASSERT_EQ(tokens.size(), 6u);
  EXPECT_EQ(tokens[0].token, TokenId{2});
  EXPECT_EQ(tokens[0].choice, 0);
  EXPECT_EQ(tokens[4].token, TokenId{0});
  EXPECT_EQ(tokens[4].choice, 1);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].choice, 0);
  EXPECT_EQ(ends[0].reason, FinishReason::kLength);
  EXPECT_EQ(ends[1].reason, FinishReason::kStop);
}

TEST(BestOfTest, CountsTokensThatAreNotShown) {
  BestOf best_of(BestOfRequest(1, 2));
  Say(&best_of, 0, {-1});
  best_of.Count(0, -9);  // its end token
  Say(&best_of, 1, {-2});
  best_of.End(0, {});
  best_of.End(1, {});
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  best_of.Output(&tokens, &ends);
  EXPECT_EQ(tokens.at(0).token, TokenId{1});
}

TEST(BestOfTest, ShowsLogprobsOnlyWhereAskedFor) {
  for (const bool asked : {false, true}) {
    Request request = BestOfRequest(1, 2);
    if (asked) request.logprobs.top = 0;
    BestOf best_of(request);
    Say(&best_of, 0, {-1});
    Say(&best_of, 1, {-2});
    best_of.End(0, {});
    best_of.End(1, {});
    std::vector<TokenEvent> tokens;
    std::vector<ChoiceEnd> ends;
    best_of.Output(&tokens, &ends);
    EXPECT_EQ(tokens.at(0).logprob.has_value(), asked);
  }
}

}  // namespace
}  // namespace refrain::engine
