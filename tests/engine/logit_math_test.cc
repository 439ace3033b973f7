#include "engine/logit_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace refrain::engine {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Normal(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

TEST(LogitMath, ExpIsExactToFloatPrecisionAndEndsAtZero) {
  for (float x = 0; x >= -87; x -= 0.0137f) {
    const double want = std::exp(double{x});
    EXPECT_NEAR(ExpNonPositive(x), want, 2e-7 * want) << x;
  }
  for (const float x : {-87.1f, -1e9f, -kInfinity, kNaN}) EXPECT_EQ(ExpNonPositive(x), 0.0f) << x;
}

// Sizes around a block and around the lanes inside of one, the greatest at every place.
TEST(LogitMath, MaximaOfBlocksAreThoseOfTheirValues) {
  for (const size_t count : {1, 15, 16, 17, 63, 64, 65, 130, 200}) {
    for (size_t at = 0; at < count; ++at) {
      std::vector<float> values(count, -3.0f);
      values[at] = 2.0f;
      values[(at + 1) % count] = count > 1 ? kNaN : 2.0f;
      const std::vector<float> maxima = BlockMaxima(values);
      ASSERT_EQ(maxima.size(), (count + kLogitBlock - 1) / kLogitBlock);
      EXPECT_EQ(maxima[at / kLogitBlock], 2.0f) << at << " of " << count;
      EXPECT_EQ(Greatest(maxima), 2.0f);
    }
  }
  EXPECT_EQ(Greatest(BlockMaxima({})), -kInfinity);
}

TEST(LogitMath, SumsOfBlocksAgreeWithDoublePrecision) {
  for (const size_t count : {1, 63, 64, 65, 1003}) {
    const std::vector<float> values = Normal(count);
    const float max = Greatest(BlockMaxima(values));
    const std::vector<double> sums = BlockSums(values, max, 0.7f);
    ASSERT_EQ(sums.size(), (count + kLogitBlock - 1) / kLogitBlock);
    for (size_t block = 0; block < sums.size(); ++block) {
      double want = 0;
      for (size_t i = block * kLogitBlock; i < std::min(count, (block + 1) * kLogitBlock); ++i) {
        want += std::exp((double{values[i]} - max) * 0.7);
      }
      EXPECT_NEAR(sums[block], want, 3e-6 * want) << block << " of " << count;
    }
  }
}

}  // namespace
}  // namespace refrain::engine
