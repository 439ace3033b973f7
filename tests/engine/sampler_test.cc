#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;

constexpr TokenId T(int32_t id) { return static_cast<TokenId>(id); }

SamplerState Sampler(const SamplingParams& params, uint64_t seed = 1,
                     std::vector<TokenId> prompt = {}, int32_t min_tokens = 0,
                     std::vector<TokenId> end_tokens = {}) {
  return SamplerState(params, seed, prompt, min_tokens, std::move(end_tokens));
}

TokenId SampleOnce(SamplerState& sampler, std::vector<float> logits) {
  return sampler.Sample(logits);
}

// How often each token was drawn, with a fresh seed each time.
std::map<int32_t, int> Frequencies(const SamplingParams& params, const std::vector<float>& logits,
                                   int draws) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    SamplerState sampler = Sampler(params, 1000 + i);
    ++counts[static_cast<int32_t>(SampleOnce(sampler, logits))];
  }
  return counts;
}

std::vector<int32_t> Support(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<int32_t> tokens;
  for (const auto& [token, count] : Frequencies(params, logits, 4000)) tokens.push_back(token);
  return tokens;
}

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

TEST(Sampler, GreedyTakesTheBestAndOfEqualOnesTheLowestId) {
  SamplerState sampler = Sampler({.temperature = 0});
  EXPECT_EQ(SampleOnce(sampler, {1, 5, 5, 2}), T(1));
}

// Chi-squared against the softmax itself; 5 degrees of freedom, 99.9 % at 20.5.
TEST(Sampler, DrawsFollowTheModelsDistributionAtTemperatureOne) {
  const std::vector<double> p = {0.4, 0.25, 0.15, 0.1, 0.06, 0.04};
  constexpr int kDraws = 20000;
  const auto counts = Frequencies({}, LogitsOf(p), kDraws);
  double chi2 = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * kDraws;
    chi2 += std::pow(counts.at(static_cast<int32_t>(i)) - expected, 2) / expected;
  }
  EXPECT_LT(chi2, 20.5);
}

TEST(Sampler, TemperatureSharpensTheDistribution) {
  const auto counts = Frequencies({.temperature = 0.5}, LogitsOf({0.6, 0.4}), 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.36 / (0.36 + 0.16), 0.015);
}

TEST(Sampler, TopKKeepsTheKBest) {
  EXPECT_THAT(Support({.top_k = 2}, LogitsOf({0.1, 0.5, 0.1, 0.3})), ElementsAre(1, 3));
}

// 0.5 alone does not reach 0.7, 0.5 + 0.3 does.
TEST(Sampler, TopPKeepsTheSmallestSetThatReachesTheShare) {
  EXPECT_THAT(Support({.top_p = 0.7}, LogitsOf({0.1, 0.5, 0.1, 0.3})), ElementsAre(1, 3));
  EXPECT_THAT(Support({.top_p = 0.45}, LogitsOf({0.1, 0.5, 0.1, 0.3})), ElementsAre(1));
}

// A nucleus of far more tokens than the first sorted portion.
TEST(Sampler, TopPOfAFlatDistributionKeepsItsShareOfALargeVocabulary) {
  SamplingParams params{.top_p = 0.5};
  std::vector<float> logits(2000, 0.0f);
  for (int i = 0; i < 2000; ++i) logits[i] = -1e-5f * static_cast<float>(i);
  for (const auto& [token, count] : Frequencies(params, logits, 3000)) EXPECT_LT(token, 1010);
}

TEST(Sampler, MinPDropsTokensBelowAShareOfTheBest) {
  EXPECT_THAT(Support({.min_p = 0.3}, LogitsOf({0.5, 0.2, 0.14, 0.16})), ElementsAre(0, 1, 3));
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogitsOfSeenTokens) {
  SamplerState sampler = Sampler({.temperature = 0, .repetition_penalty = 2.0}, 1, {T(0), T(2)});
  std::vector<float> logits = {4, 3, -1};
  EXPECT_EQ(sampler.Sample(logits), T(1));
  EXPECT_THAT(logits, ElementsAre(2, 3, -2));
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountOutputTokensOnly) {
  SamplerState sampler =
      Sampler({.temperature = 0, .presence_penalty = 0.5, .frequency_penalty = 0.25}, 1, {T(1)});
  EXPECT_EQ(SampleOnce(sampler, {9, 0}), T(0));
  EXPECT_EQ(SampleOnce(sampler, {9, 0}), T(0));
  std::vector<float> logits = {9, 0};
  sampler.Sample(logits);
  EXPECT_THAT(logits, ElementsAre(9 - 0.5f - 2 * 0.25f, 0));
}

TEST(Sampler, LogitBiasIsAddedAndAllowedTokensExcludeTheOthers) {
  SamplerState biased = Sampler({.temperature = 0, .logit_bias = {{T(2), 10.0f}}});
  EXPECT_EQ(SampleOnce(biased, {5, 1, 0}), T(2));
  EXPECT_THAT(Support({.allowed_tokens = {T(1), T(2)}}, LogitsOf({0.8, 0.1, 0.1})),
              ElementsAre(1, 2));
}

TEST(Sampler, TokensOutsideOfTheVocabularyAreIgnored) {
  SamplerState sampler = Sampler({.temperature = 0,
                                  .repetition_penalty = 1.5,
                                  .logit_bias = {{T(7), 1.0f}},
                                  .allowed_tokens = {T(9), T(1)}},
                                 1, {T(8)}, 3, {T(12)});
  EXPECT_EQ(SampleOnce(sampler, {5, 1}), T(1));
}

// A token must come, and never one that is not allowed.
TEST(Sampler, BansGiveWayWhereTheyLeaveNoAllowedToken) {
  const SamplingParams one_allowed = {.temperature = 0, .allowed_tokens = {T(1)}};
  SamplerState end_token = Sampler(one_allowed, 1, {}, 2, {T(1)});
  EXPECT_EQ(SampleOnce(end_token, {9, 1}), T(1));
  SamplingParams bad_word = one_allowed;
  bad_word.banned_sequences = {{T(1), T(1)}};
  SamplerState repeated = Sampler(bad_word);
  EXPECT_EQ(SampleOnce(repeated, {9, 1}), T(1));
  EXPECT_EQ(SampleOnce(repeated, {9, 1}), T(1));
  bad_word.allowed_tokens = {T(1), T(0)};
  SamplerState with_another = Sampler(bad_word);
  EXPECT_EQ(SampleOnce(with_another, {1, 9}), T(1));
  EXPECT_EQ(SampleOnce(with_another, {1, 9}), T(0));
}

TEST(Sampler, EndTokensAreBannedBeforeMinTokens) {
  SamplerState sampler = Sampler({.temperature = 0}, 1, {}, 2, {T(0)});
  EXPECT_FALSE(sampler.greedy_unchanged());
  EXPECT_EQ(SampleOnce(sampler, {9, 1}), T(1));
  EXPECT_EQ(SampleOnce(sampler, {9, 1}), T(1));
  EXPECT_EQ(SampleOnce(sampler, {9, 1}), T(0));
}

// The pair 0 1 and the single 3: 1 goes after anything but 0, 3 never.
TEST(Sampler, BannedSequencesAreNotCompleted) {
  SamplingParams params{.temperature = 0};
  params.banned_sequences = {{T(0), T(1)}, {T(3)}, {T(2), T(2), T(1)}};
  SamplerState sampler = Sampler(params);
  EXPECT_FALSE(sampler.greedy_unchanged());
  EXPECT_EQ(SampleOnce(sampler, {5, 6, 0, 9}), T(1));
  EXPECT_EQ(SampleOnce(sampler, {7, 6, 0, 9}), T(0));
  EXPECT_EQ(SampleOnce(sampler, {5, 6, 0, 9}), T(0));  // 0 1 would be complete
  EXPECT_EQ(SampleOnce(sampler, {1, 0, 2, 9}), T(2));
  EXPECT_EQ(SampleOnce(sampler, {1, 0, 2, 9}), T(2));
  EXPECT_EQ(SampleOnce(sampler, {5, 6, 0, 9}), T(0));  // 2 2 1 would be
  EXPECT_EQ(SampleOnce(sampler, {1, 0, 2, 9}), T(2));
  EXPECT_EQ(SampleOnce(sampler, {5, 6, 0, 9}), T(1));
}

TEST(Sampler, EqualSeedsChooseEqualTokensAndOthersDoNot) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  SamplerState a = Sampler({}, 5), b = Sampler({}, 5), c = Sampler({}, 6);
  int differences = 0;
  for (int step = 0; step < 64; ++step) {
    std::vector<float> logits(512);
    for (float& x : logits) x = normal(random);
    const TokenId from_a = SampleOnce(a, logits);
    EXPECT_EQ(from_a, SampleOnce(b, logits));
    differences += from_a != SampleOnce(c, logits);
  }
  EXPECT_GT(differences, 32);
}

TEST(Logprobs, SumToOneAndAgreeWithDoublePrecision) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 6);
  std::vector<float> logits(49152);
  for (float& x : logits) x = normal(random);
  double max = -1e30, sum = 0;
  for (const float x : logits) max = std::max<double>(max, x);
  for (const float x : logits) sum += std::exp(x - max);
  EXPECT_NEAR(LogSumExp(logits), max + std::log(sum), 2e-6);
}

TEST(Logprobs, RankAndTopAreOrderedWithTiesByLowerId) {
  const LogprobRow row = ComputeLogprobs(std::vector<float>{1, 3, 2, 3}, T(2), 3);
  EXPECT_EQ(row.token.rank, 3);
  ASSERT_EQ(row.top.size(), 3u);
  EXPECT_EQ(row.top[0].token, T(1));
  EXPECT_EQ(row.top[1].token, T(3));
  EXPECT_EQ(row.top[2].token, T(2));
  const double norm = std::log(std::exp(1) + 2 * std::exp(3) + std::exp(2));
  EXPECT_NEAR(row.top[0].logprob, 3 - norm, 1e-6);
  EXPECT_NEAR(row.token.logprob, 2 - norm, 1e-6);
}

TEST(Logprobs, MoreTopsThanTokensGiveAllTokens) {
  EXPECT_EQ(ComputeLogprobs(std::vector<float>{1, 2}, T(0), 20).top.size(), 2u);
}

}  // namespace
}  // namespace refrain::engine
