#include "tools/loadgen/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace refrain::loadgen {
namespace {

std::vector<double> Gaps(const ArrivalOptions& options, int count) {
  auto arrivals = Arrivals::Make(options);
  EXPECT_TRUE(arrivals.ok()) << arrivals.status();
  std::vector<double> gaps;
  double before = 0;
  for (int i = 0; i < count; ++i) {
    const double now = arrivals->Next();
    gaps.push_back(now - before);
    before = now;
  }
  return gaps;
}

// The largest distance between the gaps' distribution and the exponential law of this rate.
double KolmogorovSmirnov(std::vector<double> gaps, double rate) {
  std::sort(gaps.begin(), gaps.end());
  const auto count = static_cast<double>(gaps.size());
  double distance = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    const double law = 1 - std::exp(-rate * gaps[i]);
    distance = std::max(
        {distance, law - static_cast<double>(i) / count, static_cast<double>(i + 1) / count - law});
  }
  return distance;
}

// The distance that 1 % of samples of the law itself exceed (Kolmogorov's asymptotic formula).
double CriticalDistance(int count) { return 1.628 / std::sqrt(count); }

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double SquaredVariation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(values.size()) / (mean * mean);
}

TEST(Arrivals, PoissonGapsFollowTheExponentialLaw) {
  constexpr int kGaps = 20000;
  for (const double rate : {0.5, 7.0, 2000.0}) {
    for (const uint64_t seed : {1, 2, 3}) {
      const auto gaps = Gaps({.rate_per_s = rate, .seed = seed}, kGaps);
      EXPECT_LT(KolmogorovSmirnov(gaps, rate), CriticalDistance(kGaps)) << rate << " " << seed;
    }
  }
}

// The test above can fail: it tells laws apart that are not far from each other.
TEST(Arrivals, OtherLawsAreNotTakenForExponential) {
  constexpr int kGaps = 20000;
  const auto refused = [](const ArrivalOptions& options, double rate) {
    return KolmogorovSmirnov(Gaps(options, kGaps), rate) > CriticalDistance(kGaps);
  };
  EXPECT_TRUE(refused({.law = ArrivalLaw::kConstant, .rate_per_s = 5}, 5));
  EXPECT_TRUE(refused({.law = ArrivalLaw::kGamma, .rate_per_s = 5, .burstiness = 0.9}, 5));
  EXPECT_TRUE(refused({.law = ArrivalLaw::kPoisson, .rate_per_s = 5}, 5.2));
}

TEST(Arrivals, NeighbouringPoissonGapsAreUnrelated) {
  const auto gaps = Gaps({.rate_per_s = 3}, 50000);
  const double mean = Mean(gaps);
  double product = 0;
  for (size_t i = 1; i < gaps.size(); ++i) product += (gaps[i] - mean) * (gaps[i - 1] - mean);
  EXPECT_NEAR(product / static_cast<double>(gaps.size()) / (mean * mean), 0, 0.02);
}

TEST(Arrivals, GammaGapsHaveTheRateAndTheBurstinessAskedFor) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const auto gaps =
        Gaps({.law = ArrivalLaw::kGamma, .rate_per_s = 10, .burstiness = burstiness}, 100000);
    EXPECT_NEAR(Mean(gaps), 0.1, 0.002) << burstiness;
    EXPECT_NEAR(SquaredVariation(gaps), 1 / burstiness, 0.05 / burstiness) << burstiness;
  }
}

TEST(Arrivals, ConstantGapsAreEqual) {
  for (const double gap : Gaps({.law = ArrivalLaw::kConstant, .rate_per_s = 4}, 100)) {
    EXPECT_NEAR(gap, 0.25, 1e-12);
  }
}

TEST(Arrivals, TheSameSeedGivesTheSameTimes) {
  EXPECT_EQ(Gaps({.rate_per_s = 2, .seed = 9}, 100), Gaps({.rate_per_s = 2, .seed = 9}, 100));
  EXPECT_NE(Gaps({.rate_per_s = 2, .seed = 9}, 100), Gaps({.rate_per_s = 2, .seed = 10}, 100));
}

TEST(Arrivals, RefusesRatesAndBurstinessThatAreNotAboveZero) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(Arrivals::Make({.rate_per_s = bad}).ok()) << bad;
    EXPECT_FALSE(Arrivals::Make({.burstiness = bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace refrain::loadgen
