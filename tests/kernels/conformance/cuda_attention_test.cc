#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/worse.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/cuda/attention_on_device.h"
#include "tests/support/cuda_cases.h"

// Attention as the model calls it on the CUDA back ends, whichever kernel they choose. The kernels
// one by one, over many more shapes: tests/kernels/cuda.

namespace refrain::kernels {
namespace {

// The greatest distance of an output head from the reference's, over its length.
double WorstError(const std::vector<float>& got, const std::vector<float>& want, int head_dim) {
  double worst = 0;
  for (size_t head = 0; head < want.size(); head += head_dim) {
    double error = 0, length = 0;
    for (size_t i = head; i < head + head_dim; ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      length += std::pow(double{want[i]}, 2);
    }
    const double share = std::sqrt(error / length);
    worst = Worse(worst, share);
  }
  return worst;
}

// Kernels for tensor cores round queries and weights to the cache's type, which moves a weight by
// up to 2^-11 or 2^-8 (to bf16 over fp8), times the size of a score.
double Tolerance(DType kv) {
  return kv == DType::kF32 ? 4e-5 : kv == DType::kF16 ? 0x1p-8 : 0x1p-5;
}

class CudaAttention : public ::testing::TestWithParam<std::tuple<std::string, AttentionShape>> {};

TEST_P(CudaAttention, MatchesTheReferenceAnnouncedOrNot) {
  const auto& [name, shape] = GetParam();
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape);
    const std::vector<float> want = ReferenceAttention(scenario);
    const auto backend = refrain::testing::MakeCudaBackend(name);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    EXPECT_LT(WorstError(attention.out.Read(), want, shape.head_dim), Tolerance(shape.kv_dtype));
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      attention.args.mode = mode;
      backend->BeginStep(attention.Inputs(1));
      for (int layer = 0; layer < 2; ++layer) backend->ChunkAttention(attention.args);
      EXPECT_LT(WorstError(attention.out.Read(), want, shape.head_dim), Tolerance(shape.kv_dtype));
    }
  }
}

TEST_P(CudaAttention, NaNStaysNaNAndInItsRow) {
  const auto& [name, shape] = GetParam();
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape);
    const std::vector<float> want = ReferenceAttention(scenario);
    scenario.PoisonQueries();
    const auto backend = refrain::testing::MakeCudaBackend(name);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    std::vector<float> got = attention.out.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      if (!scenario.poisoned(i / head_dim)) continue;
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
      got[i] = want[i];
    }
    EXPECT_LT(WorstError(got, want, shape.head_dim), Tolerance(shape.kv_dtype));
  }
}

TEST_P(CudaAttention, AKeyThatIsNoFiniteNumberHarmsOnlyRowsThatSeeIt) {
  const auto& [name, shape] = GetParam();
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape);
    scenario.PoisonKeys();
    std::vector<float> want = ReferenceAttention(scenario);
    const auto backend = refrain::testing::MakeCudaBackend(name);
    AttentionOnDevice attention(*backend, scenario);
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      attention.args.mode = mode;
      backend->ChunkAttention(attention.args);
      std::vector<float> got = attention.out.Read();
      size_t harmed = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << "element " << i;
        if (!std::isnan(want[i])) continue;
        got[i] = want[i] = 1.0f;
        ++harmed;
      }
      EXPECT_GT(harmed, 0u);
      EXPECT_LT(harmed, got.size());
      EXPECT_LT(WorstError(got, want, shape.head_dim), Tolerance(shape.kv_dtype));
      want = ReferenceAttention(scenario);
    }
  }
}

const AttentionShape kShapes[] = {
    {4, 2, 40, 32, DType::kF32},    {6, 2, 64, 64, DType::kF32, 100}, {6, 2, 64, 64, DType::kF16},
    {4, 2, 96, 32, DType::kBF16},   {2, 1, 128, 64, DType::kF16, 90}, {3, 3, 10, 16, DType::kBF16},
    {6, 2, 64, 64, DType::kF8E4M3},
};

INSTANTIATE_TEST_SUITE_P(
    Backends, CudaAttention,
    ::testing::Combine(::testing::ValuesIn(refrain::testing::CudaBackendNames()),
                       ::testing::ValuesIn(kShapes)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" + std::get<1>(info.param).name();
    });

}  // namespace
}  // namespace refrain::kernels
