// SmolLM2 in f32 (dequantised weights, f32 KV) against float64 golden values. Limits: the README
// beside the data, row "fp32, dequantised weights".

#include <gtest/gtest.h>

#include <cmath>

#include "tests/integration/golden/golden_checks.h"

namespace refrain::testing {
namespace {

class SmolLm2InF32 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    HarnessOptions options;
    options.backend.compute_dtype = "f32";
    options.kv_dtype = "f32";
    auto harness = ModelHarness::Load(SmolLm2Path(), options);
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = std::move(*harness).release();
  }
  static void TearDownTestSuite() { delete std::exchange(harness_, nullptr); }

  static ModelHarness* harness_;
};
ModelHarness* SmolLm2InF32::harness_ = nullptr;

TEST_F(SmolLm2InF32, Top20LogprobsOfEveryPromptAreWithinTolerance) {
  const auto errors = MeasureTop20(*harness_);
  ASSERT_EQ(errors.size(), 13u);
  for (const TopError& error : errors) {
    EXPECT_LT(error.max_abs, 1e-3) << error.prompt;
  }
}

TEST_F(SmolLm2InF32, EveryEchoedLogprobIsWithinTolerance) {
  const EchoError error = MeasureEcho(*harness_);
  EXPECT_EQ(error.compared, 127 + 299);
  EXPECT_LT(error.max_abs, 2e-3);
}

TEST_F(SmolLm2InF32, GreedyTokensEqualUpToTheFirstNarrowMarginAndAll1024StepsAreWithinTolerance) {
  const GreedyErrors greedy = MeasureGreedy(*harness_, 0.01);
  std::printf("free running: compared %d of %d steps\n", greedy.free_compared, greedy.steps);
  EXPECT_EQ(greedy.free_different, 0);
  EXPECT_GE(greedy.free_compared, greedy.steps * 0.8);
  EXPECT_EQ(greedy.steps, PartInThisBuild(1024));
  EXPECT_LT(greedy.worst_prompt_mean_abs, 1e-3);
  EXPECT_LT(greedy.largest_deficit, 0.01);
}

TEST_F(SmolLm2InF32, NegativeLogLikelihoodOfEveryWindowEqualsTheReference) {
  for (const GoldenWindows& windows : WindowsToCompare(/*also_long=*/true)) {
    const WindowError error =
        MeasurePerplexity(*harness_, windows.tokens, PartInThisBuild(windows.count));
    std::printf("compared %d of %d windows of %d: worst %.6f\n", error.windows, windows.count,
                windows.tokens, error.worst_window_error);
    EXPECT_EQ(error.windows, PartInThisBuild(windows.count));
    EXPECT_LT(error.worst_window_error, 1e-4);
  }
}

}  // namespace
}  // namespace refrain::testing
