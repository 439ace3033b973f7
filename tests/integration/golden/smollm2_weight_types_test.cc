// What the default arithmetic costs with weights of each quantised type: perplexity beside f32
// arithmetic on the same weights, which are SmolLM2's, rounded once more. Of the type that the
// model comes in, smollm2_quantized_test tells, beside the golden values.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/integration/golden/golden_checks.h"
#include "tests/support/requantized_model.h"
#include "tests/support/temporary_directory.h"

namespace refrain::testing {
namespace {

using kernels::DType;

std::vector<DType> TypesToCompare() {
  if (!ComparesAll()) return {DType::kQ4_K};
  return {DType::kQ8_0, DType::kQ4_0, DType::kQ5_0, DType::kQ5_1,
          DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
}

class SmolLm2WeightTypes : public ::testing::TestWithParam<DType> {
 protected:
  WindowError Measure(const std::string& path, const std::string& compute_dtype,
                      const std::string& kv_dtype) {
    HarnessOptions options;
    options.backend.compute_dtype = compute_dtype;
    options.kv_dtype = kv_dtype;
    auto harness = ModelHarness::Load(path, options);
    if (!harness.ok()) {
      ADD_FAILURE() << harness.status();
      return {};
    }
    return MeasurePerplexity(**harness, 512, PartInThisBuild(ComparesAll() ? 8 : 2),
                             Predicted::kSecondHalf);
  }
};

TEST_P(SmolLm2WeightTypes, TheDefaultsPerplexityIsNearThatOfF32Arithmetic) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/model.gguf";
  const absl::Status written = WriteRequantized(SmolLm2Path(), GetParam(), path);
  ASSERT_TRUE(written.ok()) << written;
  const WindowError exact = Measure(path, "f32", "f32");
  const WindowError served = Measure(path, "auto", "f16");
  ASSERT_GT(exact.windows, 0);
  ASSERT_EQ(served.windows, exact.windows);
  const double change = std::exp(served.nll_mean - exact.nll_mean) - 1;
  std::printf("%d windows: perplexity %.4f in f32, %+.4f %% by default\n", exact.windows,
              std::exp(exact.nll_mean), 100 * change);
  EXPECT_LT(std::abs(change), 0.005);
}

INSTANTIATE_TEST_SUITE_P(EveryType, SmolLm2WeightTypes, ::testing::ValuesIn(TypesToCompare()),
                         [](const auto& info) {
                           return std::string(kernels::Traits(info.param).name);
                         });

}  // namespace
}  // namespace refrain::testing
