#include "engine/beam_group.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace refrain::engine {
namespace {

constexpr TokenId kEnd{0};

Request BeamRequest(int32_t n, int32_t beams) {
  Request request;
  request.n = n;
  request.best_of = beams;
  request.beam.emplace();
  return request;
}

std::shared_ptr<const StopRules> Rules(int32_t max_tokens, int32_t min_tokens = 0,
                                       std::vector<TokenId> end_tokens = {kEnd}) {
  return std::make_shared<const StopRules>(StopParams{.min_tokens = min_tokens}, max_tokens,
                                           end_tokens);
}

SampledToken Row(const std::vector<std::pair<int32_t, float>>& top) {
  SampledToken row;
  int32_t rank = 0;
  for (const auto& [token, logprob] : top) row.top.push_back({TokenId{token}, logprob, ++rank});
  row.token = row.top.front().token;
  row.logprob = row.top.front();
  return row;
}

std::vector<int32_t> TokensOf(const std::vector<TokenEvent>& events, int32_t choice) {
  std::vector<int32_t> tokens;
  for (const TokenEvent& event : events) {
    if (event.choice == choice) tokens.push_back(static_cast<int32_t>(event.token));
  }
  return tokens;
}

TEST(BeamGroupTest, AsksForAsManyCandidatesAsTheSearchOrTheClientNeeds) {
  EXPECT_EQ(BeamGroup(BeamRequest(1, 4), Rules(8)).top_logprobs(), 8);
  // An end token that is named twice is one.
  EXPECT_EQ(BeamGroup(BeamRequest(1, 1), Rules(8, 0, {kEnd, TokenId{5}, kEnd})).top_logprobs(), 3);
  Request curious = BeamRequest(1, 4);
  curious.logprobs.top = 20;
  EXPECT_EQ(BeamGroup(curious, Rules(8)).top_logprobs(), 20);
}

TEST(BeamGroupTest, GoesOnWhenAllBeamsHaveDeliveredInAnyOrder) {
  BeamGroup group(BeamRequest(2, 2), Rules(2));
  EXPECT_TRUE(group.Deliver(0, Row({{1, -1}, {2, -2}})));
  ASSERT_EQ(group.Advance().size(), 2u);
  EXPECT_FALSE(group.delivered(1));
  EXPECT_FALSE(group.Deliver(1, Row({{7, -0.5}, {8, -4}})));
  EXPECT_TRUE(group.delivered(1));
  EXPECT_FALSE(group.delivered(0));
  EXPECT_TRUE(group.Deliver(0, Row({{5, -1}, {6, -3}})));
  EXPECT_TRUE(group.Advance().empty());
  EXPECT_TRUE(group.over());
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  EXPECT_EQ(group.Output(2, &tokens, &ends), 4);
  EXPECT_EQ(TokensOf(tokens, 0), (std::vector{1, 5}));
  EXPECT_EQ(TokensOf(tokens, 1), (std::vector{2, 7}));
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[1].choice, 1);
  EXPECT_EQ(ends[1].reason, FinishReason::kLength);
  EXPECT_FALSE(tokens[0].logprob.has_value());
}

TEST(BeamGroupTest, AnEndTokenEndsTheChoiceAndIsNotShown) {
  BeamGroup group(BeamRequest(1, 1), Rules(5));
  group.Deliver(0, Row({{3, -0.1}, {4, -3}}));
  group.Advance();
  group.Deliver(0, Row({{0, -0.1}, {4, -3}}));
  group.Advance();
  ASSERT_TRUE(group.over());
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  EXPECT_EQ(group.Output(1, &tokens, &ends), 2);  // the end token counts
  EXPECT_EQ(TokensOf(tokens, 0), std::vector{3});
  EXPECT_EQ(ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(ends[0].stop_token, kEnd);
}

TEST(BeamGroupTest, BansEndTokensBeforeMinTokens) {
  BeamGroup group(BeamRequest(1, 1), Rules(3, /*min_tokens=*/1));
  group.Deliver(0, Row({{0, -0.1}, {4, -3}}));
  ASSERT_EQ(group.Advance().size(), 1u);
  group.Deliver(0, Row({{0, -0.1}, {4, -3}}));
  group.Advance();
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  group.Output(1, &tokens, &ends);
  EXPECT_EQ(TokensOf(tokens, 0), std::vector{4});
  EXPECT_EQ(ends[0].stop_token, kEnd);
}

// As in sampling: a token must come, and is no end yet.
TEST(BeamGroupTest, BansGiveWayWhereTheyLeaveNoToken) {
  BeamGroup group(BeamRequest(1, 1), Rules(3, /*min_tokens=*/1, {kEnd, TokenId{4}}));
  for (int step = 0; step < 2; ++step) {
    ASSERT_FALSE(group.over());
    group.Deliver(0, Row({{0, -0.1}, {4, -3}}));
    group.Advance();
  }
  EXPECT_TRUE(group.over());
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  EXPECT_EQ(group.Output(1, &tokens, &ends), 2);
  EXPECT_EQ(TokensOf(tokens, 0), std::vector{0});
  EXPECT_EQ(ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(ends[0].stop_token, kEnd);
}

TEST(BeamGroupTest, AnIgnoredEndComesNoEarlierThanMinTokens) {
  const StopParams params{.min_tokens = 1, .ignore_eos = true};
  BeamGroup group(BeamRequest(1, 1),
                  std::make_shared<const StopRules>(params, 2, std::vector<TokenId>{kEnd}));
  for (int step = 0; step < 2; ++step) {
    group.Deliver(0, Row({{0, -0.1}, {4, -3}}));
    group.Advance();
  }
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  group.Output(1, &tokens, &ends);
  EXPECT_EQ(TokensOf(tokens, 0), (std::vector{4, 0}));
  EXPECT_EQ(ends[0].reason, FinishReason::kLength);
}

// The second choice's first token is of the prompt's row, its second of beam 1's.
TEST(BeamGroupTest, ShowsLogprobsOfTheBeamThatEachTokenCameFrom) {
  Request request = BeamRequest(2, 2);
  request.logprobs.top = 1;
  BeamGroup group(request, Rules(2));
  group.Deliver(0, Row({{1, -1}, {2, -2}}));
  group.Advance();
  group.Deliver(0, Row({{5, -1}, {6, -3}}));
  group.Deliver(1, Row({{9, -0.4}, {7, -0.5}}));
  group.Advance();
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  group.Output(2, &tokens, &ends);
  ASSERT_EQ(TokensOf(tokens, 1), (std::vector{2, 9}));
  const TokenEvent& first = tokens[2];
  EXPECT_EQ(first.logprob->rank, 2);
  EXPECT_FLOAT_EQ(first.logprob->logprob, -2);
  ASSERT_EQ(first.top.size(), 1u);
  EXPECT_EQ(first.top[0].token, TokenId{1});
  EXPECT_EQ(tokens[3].top[0].token, TokenId{9});
}

// Two continuations are all there is for three choices.
TEST(BeamGroupTest, EndsEveryChoiceEvenWithoutEnoughContinuations) {
  BeamGroup group(BeamRequest(3, 3), Rules(1));
  group.Deliver(0, Row({{1, -1}, {2, -2}}));
  group.Advance();
  std::vector<TokenEvent> tokens;
  std::vector<ChoiceEnd> ends;
  EXPECT_EQ(group.Output(3, &tokens, &ends), 2);
  EXPECT_EQ(ends.size(), 3u);
  EXPECT_TRUE(TokensOf(tokens, 2).empty());
}

}  // namespace
}  // namespace refrain::engine
