#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

// Of a vocabulary of four; one id that it lacks, and one that is named twice.
TEST(Sampler, BansGiveWayWhereTheyLeaveNoToken) {
  for (const double temperature : {0.0, 1.0}) {
    SamplerState all = Sampler({.temperature = temperature}, 1, {}, 1, {T(0), T(1), T(2), T(3)});
    EXPECT_EQ(SampleOnce(all, {1, 2, 90, 3}), T(2));
    SamplingParams words = {.temperature = temperature};
    words.banned_sequences = {{T(0)}, {T(3)}, {T(3)}, {T(9)}};
    SamplerState with_words = Sampler(words, 1, {}, 2, {T(1), T(2)});
    EXPECT_EQ(SampleOnce(with_words, {1, 2, 90, 3}), T(2));
    SamplerState one_left = Sampler(words, 1, {}, 2, {T(1)});
    EXPECT_EQ(SampleOnce(one_left, {1, 90, 2, 3}), T(2));
  }
}

TEST(Sampler, EndTokensAreBannedBeforeMinTokens) {
  SamplerState sampler = Sampler({.temperature = 0}, 1, {}, 2, {T(0)});
  EXPECT_TRUE(sampler.greedy_but_bans());
  EXPECT_THAT(sampler.Banned(2), ElementsAre(T(0)));
  EXPECT_EQ(SampleOnce(sampler, {9, 1}), T(1));
  EXPECT_EQ(SampleOnce(sampler, {9, 1}), T(1));
  EXPECT_THAT(sampler.Banned(2), IsEmpty());
  EXPECT_EQ(SampleOnce(sampler, {9, 1}), T(0));
}

// The pair 0 1 and the single 3: 1 goes after anything but 0, 3 never.
TEST(Sampler, BannedSequencesAreNotCompleted) {
  SamplingParams params{.temperature = 0};
  params.banned_sequences = {{T(0), T(1)}, {T(3)}, {T(2), T(2), T(1)}};
  SamplerState sampler = Sampler(params);
  EXPECT_TRUE(sampler.greedy_but_bans());
  EXPECT_THAT(sampler.Banned(2), ElementsAre(T(3)));
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

// A vocabulary of many blocks that ends inside one; banned tokens and NaN in it.
std::vector<float> ManyLogits(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(1003);
  for (float& x : logits) x = normal(random);
  for (size_t i = 100; i < 300; ++i) logits[i] = -std::numeric_limits<float>::infinity();
  logits[500] = std::numeric_limits<float>::quiet_NaN();
  return logits;
}

// Ids of the finite ones, best first.
std::vector<int32_t> BestFirst(const std::vector<float>& logits) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) ids.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

// Chi-square over the tokens that are expected ten times or more, the others together: with f
// degrees of freedom its mean is f, its deviation sqrt(2 f).
TEST(Sampler, DrawsFollowTheDistributionOverALargeVocabulary) {
  for (const double temperature : {0.5, 1.0, 1.7}) {
    const std::vector<float> logits = ManyLogits(3);
    std::vector<double> expected(logits.size());
    double total = 0;
    for (const int32_t id : BestFirst(logits)) {
      total += expected[id] = std::exp(double{logits[id]} / temperature);
    }
    constexpr int kDraws = 40000;
    const std::map<int32_t, int> counts = Frequencies({.temperature = temperature}, logits, kDraws);
    double chi_square = 0, rare_expected = 0;
    int cells = 0, rare = 0;
    for (size_t id = 0; id < logits.size(); ++id) {
      const auto found = counts.find(static_cast<int32_t>(id));
      const int count = found == counts.end() ? 0 : found->second;
      const double mean = expected[id] / total * kDraws;
      if (mean == 0) {
        EXPECT_EQ(count, 0) << id;
      } else if (mean < 10) {
        rare += count;
        rare_expected += mean;
      } else {
        chi_square += (count - mean) * (count - mean) / mean;
        ++cells;
      }
    }
    EXPECT_NEAR(rare, rare_expected, 5 * std::sqrt(rare_expected));
    EXPECT_GT(cells, 10);
    EXPECT_NEAR(chi_square, cells, 5 * std::sqrt(2.0 * cells)) << "temperature " << temperature;
  }
}

TEST(Sampler, LimitsKeepTheBestOfALargeVocabulary) {
  for (const uint32_t seed : {1, 2, 3}) {
    const std::vector<float> logits = ManyLogits(seed);
    const std::vector<int32_t> best = BestFirst(logits);
    double total = 0;
    for (const int32_t id : best) total += std::exp(double{logits[id]});
    // Temperatures so high that the least of those kept is drawn too.
    for (const int k : {1, 7, 40}) {
      std::vector<int32_t> want(best.begin(), best.begin() + k);
      std::sort(want.begin(), want.end());
      EXPECT_EQ(Support({.temperature = 50, .top_k = k}, logits), want);
    }
    for (const double top_p : {0.1, 0.5, 0.8}) {
      std::vector<int32_t> want;
      for (double sum = 0; sum < top_p * total; sum += std::exp(double{logits[want.back()]})) {
        want.push_back(best[want.size()]);
      }
      const std::map<int32_t, int> drawn = Frequencies({.top_p = top_p}, logits, 8000);
      for (const auto& [id, count] : drawn) {
        EXPECT_NE(std::find(want.begin(), want.end(), id), want.end()) << id << " at " << top_p;
      }
      double reached = 0;
      for (const auto& [id, count] : drawn) reached += std::exp(double{logits[id]});
      EXPECT_GT(reached, 0.97 * top_p * total) << top_p;
    }
    const float least = logits[best[0]] + static_cast<float>(std::log(0.2));
    std::vector<int32_t> want;
    for (const int32_t id : best) {
      if (logits[id] >= least) want.push_back(id);
    }
    std::sort(want.begin(), want.end());
    EXPECT_EQ(Support({.min_p = 0.2}, logits), want);
  }
}

// One token far above all others, which are kept all the same.
TEST(Sampler, LimitsReachFarBelowTheBest) {
  std::vector<float> logits(20000, 0.0f);
  logits[7] = 9.0f;  // e^9 is 8103: the others together weigh 2.5 times as much
  EXPECT_GT(Frequencies({.top_p = 0.9}, logits, 100).size(), 40u);
  logits.resize(600);
  for (int i = 0; i < 5; ++i) logits[100 * i + 50] = 1.0f;
  std::map<int32_t, int> few = Frequencies({.temperature = 0.9, .top_k = 6}, logits, 40000);
  EXPECT_EQ(few.size(), 6u);
  for (int i = 0; i < 5; ++i) EXPECT_GT(few[100 * i + 50], 0);
}

TEST(Sampler, ChoosesNoTokenWhereTheGreatestLogitIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {-infinity, infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> logits(200, value);
    if (value > 0) logits[70] = 3.0f;
    const std::vector<SamplingParams> all = {
        {.temperature = 1}, {.top_p = 0.9}, {.top_k = 5}, {.min_p = 0.1}, {.temperature = 0}};
    for (const SamplingParams& params : all) {
      SamplerState sampler = Sampler(params);
      EXPECT_EQ(SampleOnce(sampler, logits), kNoToken);
    }
  }
}

TEST(Logprobs, TopOfALargeVocabularyAreTheBest) {
  std::vector<float> logits = ManyLogits(5);
  logits[900] = logits[20] = 9.5f;  // a tie across blocks
  const std::vector<int32_t> best = BestFirst(logits);
  const LogprobRow row = ComputeLogprobs(logits, T(best[3]), 20);
  ASSERT_EQ(row.top.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(row.top[i].token, T(best[i]));

  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 0.001f * static_cast<float>(i);
  const LogprobRow rising = ComputeLogprobs(logits, T(0), 3);
  ASSERT_EQ(rising.top.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rising.top[i].token, T(1002 - i));
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

// Wherever the NaN is, first or in a block that has nothing else to give.
TEST(Logprobs, NaNCountsAsMinusInfinity) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const size_t at : {0, 1, 2, 100, 255}) {
    std::vector<float> logits;
    for (int i = 0; i < 256; ++i) logits.push_back(0.01f * static_cast<float>(i));
    logits[at] = kNaN;
    const LogprobRow row = ComputeLogprobs(logits, T(200), 3);
    ASSERT_EQ(row.top.size(), 3u);
    const int32_t best = at == 255 ? 254 : 255;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(row.top[i].token, T(best - i)) << at;
      EXPECT_TRUE(std::isfinite(row.top[i].logprob)) << at;
    }
  }
  const LogprobRow all = ComputeLogprobs(std::vector<float>{kNaN, 1, kNaN, 2}, T(0), 4);
  EXPECT_EQ(all.top[0].token, T(3));
  EXPECT_EQ(all.top[1].token, T(1));
  EXPECT_EQ(all.top[2].token, T(0));
  EXPECT_EQ(all.top[3].token, T(2));
  EXPECT_EQ(all.top[3].logprob, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(all.token.logprob, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(all.token.rank, 3);
}

TEST(Logprobs, MoreTopsThanTokensGiveAllTokens) {
  EXPECT_EQ(ComputeLogprobs(std::vector<float>{1, 2}, T(0), 20).top.size(), 2u);
}

// Also where the sibling has gone on meanwhile.
TEST(Sampler, AnotherChoiceOfThePromptIsAsOneMadeAnew) {
  const SamplingParams params{.temperature = 0.8,
                              .repetition_penalty = 1.7,
                              .presence_penalty = 0.3,
                              .frequency_penalty = 0.2,
                              .banned_sequences = {{T(4), T(5)}}};
  const std::vector<TokenId> prompt = {T(3), T(1), T(3), T(7)};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  SamplerState first = Sampler(params, 1, prompt, 2, {T(0)});
  SampleOnce(first, std::vector<float>(8, 0.0f));
  SamplerState sibling(first, 9);
  SamplerState anew = Sampler(params, 9, prompt, 2, {T(0)});
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(8);
    for (float& logit : logits) logit = normal(random);
    std::vector<float> same = logits;
    ASSERT_EQ(sibling.Sample(logits), anew.Sample(same)) << i;
    ASSERT_EQ(logits, same);
  }
}

// All choices of a request start in one turn of the engine.
TEST(Sampler, ManyChoicesOfALongPromptCountItOnce) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < 200'000; ++i) prompt.push_back(T(i * 7919 % 50'021));
  const SamplingParams params{.repetition_penalty = 1.1};
  const auto seconds = [](const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::optional<SamplerState> first;
  const double once = seconds([&] { first.emplace(params, 1, prompt, 0, std::vector<TokenId>()); });
  std::vector<SamplerState> others;
  const double more = seconds([&] {
    for (uint64_t i = 0; i < 63; ++i) others.emplace_back(*first, i);
  });
  EXPECT_LT(more, once);
}

// Of one token first the bias, then the penalties, then the ban, as Choose applies them.
TEST(Sampler, EditsForADeviceAscendAndKeepTheirOrderWithinAToken) {
  SamplingParams params;
  params.repetition_penalty = 1.5;
  params.presence_penalty = 0.5;
  params.logit_bias = {{T(7), 2.0f}, {T(3), 1.0f}, {T(90), 4.0f}};
  SamplerState sampler = Sampler(params, 1, {T(50), T(7), T(3), T(7), T(60)}, /*min_tokens=*/9,
                                 /*end_tokens=*/{T(7), T(2)});
  sampler.Count(T(7));
  sampler.Count(T(40));
  std::vector<kernels::LogitEdit> edits(2);  // another row's
  std::vector<int32_t> allowed;
  const kernels::SamplingRow row = sampler.DeviceRow(/*vocab_size=*/100, &edits, &allowed);
  ASSERT_EQ(row.edit_begin, 2);
  ASSERT_EQ(row.edit_end, std::ssize(edits));
  std::vector<std::string> told;
  for (size_t i = 2; i < edits.size(); ++i) {
    const kernels::LogitEdit& edit = edits[i];
    told.push_back(std::to_string(edit.token) + (edit.banned != 0              ? " ban"
                                                 : edit.bias != 0              ? " bias"
                                                 : edit.subtracted != 0        ? " chosen"
                                                 : edit.repetition_penalty > 1 ? " prompt"
                                                                               : " nothing"));
  }
  EXPECT_THAT(told, ElementsAre("2 ban", "3 bias", "3 prompt", "7 bias", "7 prompt", "7 chosen",
                                "7 ban", "40 chosen", "50 prompt", "60 prompt", "90 bias"));
}

}  // namespace
}  // namespace refrain::engine
