// SmolLM2 as it is served by default (weights as stored, int8 activations where the machine
// multiplies them, 16-bit KV) against float64 golden values. Limits: the README beside the data,
// column "int8 activations".

#include <gtest/gtest.h>

#include <cmath>

#include "tests/integration/golden/golden_checks.h"

namespace refrain::testing {
namespace {

class SmolLm2Quantized : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto harness = ModelHarness::Load(SmolLm2Path(), HarnessOptions{});
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = std::move(*harness).release();
  }
  static void TearDownTestSuite() { delete std::exchange(harness_, nullptr); }

  static ModelHarness* harness_;
};
ModelHarness* SmolLm2Quantized::harness_ = nullptr;

// The README's limits of 0.7 and 0.3 come from a small sample, to be widened where a correct path
// misses them. This one does: rounding the activations of our f32 run to int8 blocks, every product
// in f32, gives up to 0.84 (0.24 in the mean) on these 13 prompts, and rounding the blocks' scales
// to f16 moves single prompts by 0.4: the last layers amplify whatever noise there is.
TEST_F(SmolLm2Quantized, Top20LogprobsOfEveryPromptAreWithinTolerance) {
  const auto errors = MeasureTop20(*harness_);
  ASSERT_EQ(errors.size(), 13u);
  for (const TopError& error : errors) {
    EXPECT_LT(error.max_abs, 1.0) << error.prompt;
    EXPECT_LT(error.mean_abs, 0.4) << error.prompt;
  }
}

TEST_F(SmolLm2Quantized, EchoedLogprobsAreWithinTolerance) {
  const EchoError error = MeasureEcho(*harness_);
  EXPECT_EQ(error.compared, 127 + 299);
  EXPECT_LT(error.mean_abs, 0.15);
}

TEST_F(SmolLm2Quantized, TeacherForcedGreedyIsWithinToleranceAtAll1024Steps) {
  const TeacherForced forced = MeasureTeacherForced(*harness_);
  std::printf("%d flips of %d, largest margin flipped %.3f, worst mean %.4f, deficit %.3f\n",
              forced.argmax_flips, forced.steps, forced.largest_margin_flipped,
              forced.worst_prompt_mean_abs, forced.largest_deficit);
  EXPECT_EQ(forced.steps, 1024);
  EXPECT_LT(forced.worst_prompt_mean_abs, 0.08);
  EXPECT_LT(forced.largest_deficit, 0.6);
}

// What makes int8 activations a fair default.
TEST_F(SmolLm2Quantized, PerplexityIsWithinHalfAPercentOfTheReference) {
  for (const auto& [window, windows] : {std::pair{512, 32}, std::pair{2048, 8}}) {
    const WindowError error = MeasurePerplexity(*harness_, window, windows);
    const double change = std::exp(error.nll_mean - error.reference_mean) - 1;
    std::printf("window %d: perplexity %.4f, reference %.4f, change %+.3f %%\n", window,
                std::exp(error.nll_mean), std::exp(error.reference_mean), change * 100);
    EXPECT_EQ(error.windows, windows);
    EXPECT_LT(std::abs(change), 0.005);
    EXPECT_LT(error.worst_window_error, 0.04);
  }
}

}  // namespace
}  // namespace refrain::testing
