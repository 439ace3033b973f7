// SmolLM2 with weights as stored and 16-bit KV against float64 golden values: with activations of
// 15 bits, as it is served by default (8 behind the first 64 positions, but 15 in the last layers
// of rows that choose a token), and with 8. The README beside the data allows int8 activations 0.7
// (0.3 in the mean) on the top 20, 0.08 and 0.6 on greedy steps, 0.15 on echoed log-probabilities
// and 0.04 on a window. Activations of 15 bits stay far below; the limits for them are two to three
// times what was measured.

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/integration/golden/golden_checks.h"

namespace refrain::testing {
namespace {

struct Quantized {
  static constexpr char kComputeDType[] = "quantized";
};
// What is served by default.
struct Default {
  static constexpr char kComputeDType[] = "auto";
};
struct Int8 {
  static constexpr char kComputeDType[] = "int8";
};

// KV is never "auto": processors with bf16 dot instructions prefer bf16.
struct F16 {
  static constexpr char kKvDType[] = "f16";
  static constexpr bool kBestIsa = false;
};
struct Bf16 {
  static constexpr char kKvDType[] = "bf16";
  static constexpr bool kBestIsa = true;
};

// One model for all tests of a class.
template <class Arithmetic, class Kv>
class OverKv : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    HarnessOptions options{.kv_dtype = Kv::kKvDType};
    if (Kv::kBestIsa) options.backend.isa = BestIsa();
    options.backend.compute_dtype = Arithmetic::kComputeDType;
    auto harness = ModelHarness::Load(SmolLm2Path(), options);
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = std::move(*harness).release();
  }
  static void TearDownTestSuite() { delete std::exchange(harness_, nullptr); }

  static ModelHarness* harness_;
};
template <class Arithmetic, class Kv>
ModelHarness* OverKv<Arithmetic, Kv>::harness_ = nullptr;

class SmolLm2Quantized : public OverKv<Quantized, F16> {};

void ExpectTop20(ModelHarness& harness, double most_max_abs, double most_mean_abs) {
  const auto errors = MeasureTop20(harness);
  ASSERT_EQ(errors.size(), 13u);
  for (const TopError& error : errors) {
    std::printf("%s: greatest %.5f, mean %.5f\n", error.prompt.c_str(), error.max_abs,
                error.mean_abs);
    EXPECT_LT(error.max_abs, most_max_abs) << error.prompt;
    EXPECT_LT(error.mean_abs, most_mean_abs) << error.prompt;
  }
}

struct GreedyLimits {
  double least_margin;  // free running, of a step of the golden tokens
  int free_compared;    // steps in front of each prompt's first with less: so many there are
  double mean, deficit;
};
constexpr GreedyLimits k15Bits{
    .least_margin = 0.02, .free_compared = 937, .mean = 0.002, .deficit = 0.01};

void ExpectGreedy(ModelHarness& harness, const GreedyLimits& limits) {
  const GreedyErrors greedy = MeasureGreedy(harness, limits.least_margin);
  std::printf("compared %d of 1024 steps: %d flips, largest margin flipped %.3f, ", greedy.steps,
              greedy.argmax_flips, greedy.largest_margin_flipped);
  std::printf("worst mean %.4f, deficit %.3f\n", greedy.worst_prompt_mean_abs,
              greedy.largest_deficit);
  std::printf("free running: compared %d of %d steps\n", greedy.free_compared,
              limits.free_compared);
  EXPECT_EQ(greedy.free_different, 0);
  if (greedy.steps == 1024) {
    EXPECT_EQ(greedy.free_compared, limits.free_compared);
  }
  EXPECT_EQ(greedy.steps, PartInThisBuild(1024));
  EXPECT_LT(greedy.worst_prompt_mean_abs, limits.mean);
  EXPECT_LT(greedy.largest_deficit, limits.deficit);
}

TEST_F(SmolLm2Quantized, Top20LogprobsOfEveryPromptAreWithinTolerance) {
  ExpectTop20(*harness_, 0.02, 0.006);
}

TEST_F(SmolLm2Quantized, EchoedLogprobsAreWithinTolerance) {
  const EchoError error = MeasureEcho(*harness_);
  EXPECT_EQ(error.compared, 127 + 299);
  std::printf("mean %.5f, greatest %.5f\n", error.mean_abs, error.max_abs);
  EXPECT_LT(error.mean_abs, 0.002);
}

TEST_F(SmolLm2Quantized,
       GreedyTokensEqualUpToTheFirstNarrowMarginAndAll1024StepsAreWithinTolerance) {
  ExpectGreedy(*harness_, k15Bits);
}

struct PerplexityLimits {
  double change, worst_window;
};

void ExpectPerplexityOfTheReference(ModelHarness& harness, const GoldenWindows& windows,
                                    const PerplexityLimits& limits, Predicted predicted) {
  const WindowError error =
      MeasurePerplexity(harness, windows.tokens, PartInThisBuild(windows.count), predicted);
  const double change = std::exp(error.nll_mean - error.reference_mean) - 1;
  std::printf("compared %d of %d windows of %d: ", error.windows, windows.count, windows.tokens);
  std::printf("perplexity %.4f, reference %.4f, change %+.4f %%, worst window %.5f\n",
              std::exp(error.nll_mean), std::exp(error.reference_mean), change * 100,
              error.worst_window_error);
  EXPECT_EQ(error.windows, PartInThisBuild(windows.count));
  EXPECT_LT(error.worst_window_error, limits.worst_window);
  // Errors of windows have either sign. Of the few that a sanitized build compares, which errors
  // there are says nothing about the mean of all: what each window has to keep is asked of them.
  if (error.windows == windows.count) {
    EXPECT_LT(std::abs(change), limits.change);
  }
}

// A default may change the perplexity by less than 0.5 %.
void ExpectPerplexityOfTheReference(ModelHarness& harness, bool also_long,
                                    const PerplexityLimits& limits,
                                    Predicted predicted = Predicted::kAll) {
  for (const GoldenWindows& windows : WindowsToCompare(also_long)) {
    ExpectPerplexityOfTheReference(harness, windows, limits, predicted);
  }
}

bool IsDefaultKv(ModelHarness& harness, kernels::DType kv) {
  return harness.backend().info().preferred_kv == kv;
}

// Of both lengths at every level: what 15 bits and f16 change is what all others are measured by.
TEST_F(SmolLm2Quantized, PerplexityIsThatOfTheReference) {
  ExpectPerplexityOfTheReference(*harness_, /*also_long=*/true,
                                 {.change = 1e-4, .worst_window = 3e-4});
}

TEST_F(SmolLm2Quantized, ContextMakesNoDifference) {
  ExpectPerplexityOfTheReference(*harness_, /*also_long=*/false,
                                 {.change = 1e-4, .worst_window = 6e-4}, Predicted::kSecondHalf);
}

// The default. The first 64 positions have 15 bits: what needs no more than these is as near as
// above. Behind them it is half as far as bf16 is; the limits are a third to two thirds of the
// README's for int8.
class SmolLm2AsServed : public OverKv<Default, F16> {};

TEST_F(SmolLm2AsServed, LogprobsAreWithinTolerance) {
  const auto errors = MeasureTop20(*harness_);
  ASSERT_EQ(errors.size(), 13u);
  int short_prompts = 0;
  for (const TopError& error : errors) {
    std::printf("%s, %d tokens: greatest %.5f, mean %.5f\n", error.prompt.c_str(),
                error.prompt_tokens, error.max_abs, error.mean_abs);
    const bool is_short = error.prompt_tokens <= 64;
    short_prompts += is_short ? 1 : 0;
    EXPECT_LT(error.max_abs, is_short ? 0.02 : 0.5) << error.prompt;
    EXPECT_LT(error.mean_abs, is_short ? 0.006 : 0.15) << error.prompt;
  }
  EXPECT_GE(short_prompts, 5);
  const EchoError echo = MeasureEcho(*harness_);
  std::printf("echo: mean %.5f, greatest %.5f\n", echo.mean_abs, echo.max_abs);
  EXPECT_LT(echo.mean_abs, 0.05);
}

TEST_F(SmolLm2AsServed, All1024GreedyStepsAreWithinTolerance) {
  ExpectGreedy(*harness_,
               {.least_margin = 0.3, .free_compared = 142, .mean = 0.04, .deficit = 0.2});
}

// A window's limit is the README's for bf16.
TEST_F(SmolLm2AsServed, PerplexityIsNearThatOfTheReference) {
  ExpectPerplexityOfTheReference(*harness_, IsDefaultKv(*harness_, kernels::DType::kF16),
                                 {.change = 0.005, .worst_window = 0.02});
}

// K and V in bf16, the default of the levels with bf16 dot instructions (attention then rounds
// queries and weights too). Measured top 20 0.058 and 0.027 without, 0.099 and 0.045 with these
// instructions; echo 0.0054 and 0.0069. The README allows bf16 0.7, 0.25 and 0.1.
class SmolLm2QuantizedOverBf16Kv : public OverKv<Quantized, Bf16> {};

TEST_F(SmolLm2QuantizedOverBf16Kv, LogprobsAreWithinTolerance) {
  ExpectTop20(*harness_, 0.2, 0.09);
  const EchoError echo = MeasureEcho(*harness_);
  std::printf("mean %.5f, greatest %.5f\n", echo.mean_abs, echo.max_abs);
  EXPECT_LT(echo.mean_abs, 0.014);
}

TEST_F(SmolLm2QuantizedOverBf16Kv, All1024GreedyStepsAreWithinTolerance) {
  ExpectGreedy(*harness_,
               {.least_margin = 0.3, .free_compared = 142, .mean = 0.05, .deficit = 0.4});
}

// What is served by default on these levels. (smollm2_bf16_test has it beside our own f32 run.)
class SmolLm2AsServedOverBf16Kv : public OverKv<Default, Bf16> {};

TEST_F(SmolLm2AsServedOverBf16Kv, LogprobsAreWithinTolerance) { ExpectTop20(*harness_, 0.5, 0.15); }

// A window's limit is the README's.
TEST_F(SmolLm2AsServedOverBf16Kv, PerplexityBehindContextIsNearThatOfTheReference) {
  ExpectPerplexityOfTheReference(*harness_, IsDefaultKv(*harness_, kernels::DType::kBF16),
                                 {.change = 0.005, .worst_window = 0.02}, Predicted::kSecondHalf);
}

TEST_F(SmolLm2AsServedOverBf16Kv, All1024GreedyStepsAreWithinTolerance) {
  ExpectGreedy(*harness_,
               {.least_margin = 0.3, .free_compared = 142, .mean = 0.05, .deficit = 0.4});
}

TEST_F(SmolLm2QuantizedOverBf16Kv, PerplexityIsThatOfTheReference) {
  ExpectPerplexityOfTheReference(*harness_, /*also_long=*/false,
                                 {.change = 0.005, .worst_window = 0.02});
}

// `backend.compute_dtype = int8`: 8 bits of activations in front of all but the output head. The
// limits are the README's for int8, and what the perplexity of a default may differ by.
class SmolLm2Int8 : public OverKv<Int8, F16> {};

TEST_F(SmolLm2Int8, LogprobsAreWithinTolerance) {
  ExpectTop20(*harness_, 0.7, 0.3);
  const EchoError echo = MeasureEcho(*harness_);
  EXPECT_EQ(echo.compared, 127 + 299);
  std::printf("echo: mean %.5f, greatest %.5f\n", echo.mean_abs, echo.max_abs);
  EXPECT_LT(echo.mean_abs, 0.15);
}

TEST_F(SmolLm2Int8, All1024GreedyStepsAreWithinTolerance) {
  ExpectGreedy(*harness_, {.least_margin = 0.7, .free_compared = 84, .mean = 0.08, .deficit = 0.6});
}

TEST_F(SmolLm2Int8, PerplexityIsNearThatOfTheReference) {
  ExpectPerplexityOfTheReference(*harness_, /*also_long=*/false,
                                 {.change = 0.005, .worst_window = 0.04});
}

}  // namespace
}  // namespace refrain::testing
