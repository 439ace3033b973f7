// What attention_bench says of its times: each goal is reached at its limit, and missed beyond it.

#include "tools/bench/attention_goals.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace refrain::bench {
namespace {

using kernels::DType;

constexpr AttentionModel kMha = {"32/32 d=128", 32, 32, 128};
constexpr AttentionModel kGrouped = {"32/4 d=64", 32, 4, 64};
constexpr Ceilings kCeilings = {30e9, 600e9, Arithmetic::kWords};

BatchShape Shape(int keys, int shared_keys) {
  return {.slots = 32, .keys = keys, .shared_keys = shared_keys};
}

void Set(ContestResult* result, Method method, std::vector<double> seconds) {
  result->seconds[static_cast<int>(method)] = std::move(seconds);
}

ContestResult Result(double paged_s, double two_phase_s, size_t rounds = 20,
                     Ceilings ceilings = kCeilings) {
  ContestResult result;
  result.ceilings = ceilings;
  if (paged_s > 0) Set(&result, Method::kPaged, std::vector<double>(rounds, paged_s));
  Set(&result, Method::kTwoPhase, std::vector<double>(rounds, two_phase_s));
  return result;
}

std::vector<Verdict> Verdicts(const ContestResult& result, const AttentionModel& model,
                              const BatchShape& shape) {
  std::vector<Verdict> verdicts;
  for (const Goal& goal : JudgeGoals(result, model, DType::kF16, shape)) {
    verdicts.push_back(goal.verdict);
  }
  return verdicts;
}

using enum Verdict;
using List = std::vector<Verdict>;

TEST(LeastSecondsTest, SharedPagesAreReadOnceAndMultipliedForEachSequence) {
  // 1,024 keys of 16 KiB: 16.8 MB, 0.56 ms of reading; 0.54 GFLOP, 0.89 ms of multiply-adds.
  const double all = SameIdsLeastSeconds(kCeilings, kMha, DType::kF16, Shape(1024, 1024));
  EXPECT_NEAR(all, 4.0 * 32 * 1024 * 32 * 128 / 600e9, 1e-9);
  EXPECT_NEAR(all, TwoPhaseLeastSeconds(kCeilings, kMha, DType::kF16, Shape(1024, 1024)), 1e-9);
  const double half = SameIdsLeastSeconds(kCeilings, kMha, DType::kF16, Shape(1024, 512));
  EXPECT_NEAR(half, (512 + 32.0 * 512) * 16384 / 30e9, 1e-9);
  const double none = SameIdsLeastSeconds(kCeilings, kMha, DType::kF16, Shape(1024, 0));
  EXPECT_NEAR(none, PagedLeastSeconds(kCeilings, kMha, DType::kF16, Shape(1024, 0)), 1e-9);
}

TEST(AttentionGoalsTest, PagedReachesFourFifthsOfItsCeilingWhereNothingIsShared) {
  const BatchShape shape = Shape(1024, 0);
  const double least_s = PagedLeastSeconds(kCeilings, kMha, DType::kF16, shape);
  const auto paged = [&](double s) { return Verdicts(Result(s, s), kMha, shape); };
  EXPECT_EQ(paged(least_s / 0.801), (List{kReached, kReached}));
  EXPECT_EQ(paged(least_s / 0.799), (List{kMissed, kReached}));
}

TEST(AttentionGoalsTest, NoLossTakesTheMedianAndTheInterval) {
  const BatchShape shape = Shape(1024, 0);
  const double s = PagedLeastSeconds(kCeilings, kMha, DType::kF16, shape);
  const auto of_ratios = [&](double low, double high) {
    ContestResult result = Result(s, s);
    std::vector<double> two_phase(9, s / high);
    two_phase.resize(20, s / low);  // the median is `low`, the interval reaches `high`
    Set(&result, Method::kTwoPhase, two_phase);
    return Verdicts(result, kMha, shape);
  };
  EXPECT_EQ(of_ratios(0.971, 0.981), (List{kReached, kReached}));
  EXPECT_EQ(of_ratios(0.969, 0.981), (List{kReached, kMissed}));
  EXPECT_EQ(of_ratios(0.971, 0.979), (List{kReached, kMissed}));
}

TEST(AttentionGoalsTest, NineteenPairsAreTooFewForNoLoss) {
  const BatchShape shape = Shape(1024, 0);
  const double s = PagedLeastSeconds(kCeilings, kMha, DType::kF16, shape);
  EXPECT_EQ(Verdicts(Result(s, s, 19), kMha, shape), (List{kReached, kNotJudged}));
  EXPECT_EQ(Verdicts(Result(s, 2 * s, 20), kMha, shape), (List{kReached, kMissed}));
}

TEST(AttentionGoalsTest, TwoPhaseIsHeldToItsBoundWhereEverythingIsShared) {
  // Reading bounds few query heads a KV head, multiply-adds many.
  const auto grouped = [](double s) { return Verdicts(Result(1, s), kGrouped, Shape(2048, 2048)); };
  const double flops_s = 1.1 * 4.0 * 32 * 2048 * 32 * 64 / (0.65 * 600e9);
  EXPECT_EQ(grouped(0.999 * flops_s), List{kReached});
  EXPECT_EQ(grouped(1.001 * flops_s), List{kMissed});
  const Ceilings tiles = {30e9, 6000e9, Arithmetic::kBf16Tiles};
  const double read_s = 1.1 * 1024 * 16384 / (0.8 * 30e9);
  const auto of_tiles = [&](double s) {
    return Verdicts(Result(1, s, 5, tiles), kMha, Shape(1024, 1024));
  };
  EXPECT_EQ(of_tiles(0.999 * read_s), List{kReached});
  EXPECT_EQ(of_tiles(1.001 * read_s), List{kMissed});
}

TEST(AttentionGoalsTest, SharingOfManyKeysIsHeldToPaged) {
  const BatchShape shape = Shape(4096, 4096);
  const double s = TwoPhaseLeastSeconds(kCeilings, kMha, DType::kF16, shape);
  EXPECT_EQ(Verdicts(Result(3.51 * s, s), kMha, shape), (List{kReached, kReached}));
  EXPECT_EQ(Verdicts(Result(3.49 * s, s), kMha, shape), (List{kReached, kMissed}));
  EXPECT_EQ(Verdicts(Result(0, s), kMha, shape), (List{kReached, kNotJudged}));
  Ceilings tiles = kCeilings;
  tiles.arithmetic = Arithmetic::kBf16Tiles;
  EXPECT_EQ(Verdicts(Result(10.1 * s, s, 5, tiles), kMha, shape), (List{kReached, kReached}));
  EXPECT_EQ(Verdicts(Result(9.9 * s, s, 5, tiles), kMha, shape), (List{kReached, kMissed}));
}

TEST(AttentionGoalsTest, WhatHasNoGoalSaysSo) {
  EXPECT_EQ(Verdicts(Result(0, 1), kMha, Shape(1024, 0)), List{kNotJudged});
  EXPECT_EQ(ToText(JudgeGoals(Result(1, 1), kMha, DType::kF16, Shape(1024, 512))), "-");
  EXPECT_EQ(ToText({{"a", kReached}, {"b", kMissed}, {"c", kNotJudged}}),
            "a: reached; b: missed; c: not judged");
}

}  // namespace
}  // namespace refrain::bench
