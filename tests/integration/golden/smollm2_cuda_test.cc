// SmolLM2 on a GPU against float64 golden values: in f32, and as served by default there. Limits:
// the README beside the data, rows "fp32, dequantised weights" and "bf16"; over fp8 KV those of
// smollm2_fp8_test. Skipped, with the reason, where there is no GPU: tools/gpu_check, which has
// found one, counts that as failed.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "tests/integration/golden/golden_checks.h"
#include "tests/support/cuda_cases.h"

namespace refrain::testing {
namespace {

struct Arithmetic {
  const char* name;
  const char* compute_dtype;
  const char* kv_dtype;
  double top_max, top_mean, echo_mean, greedy_mean, greedy_deficit, window;
  double least_margin;  // free-running tokens are compared up to the first below
  int32_t free_steps;   // golden ones before that, of all prompts
};

std::ostream& operator<<(std::ostream& out, const Arithmetic& a) { return out << a.name; }

constexpr Arithmetic kArithmetics[] = {
    {"f32", "f32", "f32", 1e-3, 1e-3, 2e-3, 1e-3, 0.01, 1e-4, 0.01, 937},
    {"bf16", "bf16", "bf16", 0.7, 0.25, 0.1, 0.05, 0.4, 0.02, 0.3, 142},
    {"auto", "auto", "auto", 0.7, 0.25, 0.1, 0.05, 0.4, 0.02, 0.3, 142},
    {"fp8_kv", "auto", "fp8_e4m3", 2.0, 0.75, 0.15, 0.15, 1.5, 0.045, 1.0, 74},
};

class SmolLm2OnCuda : public ::testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    auto backend = MakeCudaBackend("cuda", "checked");
    if (backend == nullptr) GTEST_SKIP() << "no GPU, or a build without CUDA";
    HarnessOptions options;
    options.backend.compute_dtype = GetParam().compute_dtype;
    options.kv_dtype = GetParam().kv_dtype;
    auto harness = ModelHarness::LoadOn(std::move(backend), SmolLm2Path(), options);
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = *std::move(harness);
  }

  std::unique_ptr<ModelHarness> harness_;
};

TEST_P(SmolLm2OnCuda, LogprobsOfEveryPromptAreWithinTolerance) {
  const auto errors = MeasureTop20(*harness_);
  ASSERT_EQ(errors.size(), 13u);
  for (const TopError& error : errors) {
    std::printf("%s: greatest %.5f, mean %.5f\n", error.prompt.c_str(), error.max_abs,
                error.mean_abs);
    EXPECT_LT(error.max_abs, GetParam().top_max) << error.prompt;
    EXPECT_LT(error.mean_abs, GetParam().top_mean) << error.prompt;
  }
  const EchoError echo = MeasureEcho(*harness_);
  EXPECT_EQ(echo.compared, 127 + 299);
  EXPECT_LT(echo.mean_abs, GetParam().echo_mean);
}

TEST_P(SmolLm2OnCuda, GreedyStepsAreWithinTolerance) {
  const GreedyErrors greedy = MeasureGreedy(*harness_, GetParam().least_margin);
  std::printf("free running: compared %d of %d steps\n", greedy.free_compared, greedy.steps);
  std::printf("%d flips of %d, largest margin flipped %.3f, worst mean %.4f, deficit %.3f\n",
              greedy.argmax_flips, greedy.steps, greedy.largest_margin_flipped,
              greedy.worst_prompt_mean_abs, greedy.largest_deficit);
  EXPECT_EQ(greedy.steps, 1024);
  EXPECT_EQ(greedy.free_compared, GetParam().free_steps);
  EXPECT_EQ(greedy.free_different, 0);
  EXPECT_LT(greedy.worst_prompt_mean_abs, GetParam().greedy_mean);
  EXPECT_LT(greedy.largest_deficit, GetParam().greedy_deficit);
}

TEST_P(SmolLm2OnCuda, NegativeLogLikelihoodOfWindowsIsThatOfTheReference) {
  for (const auto& [window, windows] : {std::pair{512, 8}, std::pair{2048, 3}}) {
    const WindowError error = MeasurePerplexity(*harness_, window, windows);
    EXPECT_EQ(error.windows, windows);
    EXPECT_LT(error.worst_window_error, GetParam().window) << window;
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, SmolLm2OnCuda, ::testing::ValuesIn(kArithmetics),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace refrain::testing
