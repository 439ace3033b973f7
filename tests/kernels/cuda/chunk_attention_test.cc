// The CUDA attention kernels on the emulated device against the reference.

#include "kernels/cuda/chunk_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reference/attention.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/cuda/emulated_attention.h"

namespace refrain::kernels::cuda {
namespace {

enum class Scenario { kUnrelated, kShared, kCached };

AttentionScenario Make(Scenario scenario, const AttentionShape& shape) {
  switch (scenario) {
    case Scenario::kUnrelated:
      return UnrelatedSlots(shape);
    case Scenario::kShared:
      return SharedRuns(shape);
    case Scenario::kCached:
      break;
  }
  return RowsThatReadCachedKeys(shape);
}

struct AttentionCase {
  AttentionKernel kernel;
  AttentionShape shape;
  int num_multiprocessors = 4;
};

constexpr AttentionKernel kGeneric = AttentionKernel::kGeneric;
constexpr AttentionKernel kMma = AttentionKernel::kMma;

// The shapes of the conformance suite; numbers of blocks by rule.
const AttentionCase kCases[] = {
    {kGeneric, {3, 3, 8, 16, DType::kF32}, 1},     {kGeneric, {2, 1, 16, 32, DType::kF16}},
    {kGeneric, {9, 3, 40, 64, DType::kBF16}},      {kGeneric, {9, 3, 64, 64, DType::kF16}, 7},
    {kGeneric, {9, 3, 64, 16, DType::kF32}},       {kGeneric, {4, 1, 80, 128, DType::kF16}, 13},
    {kGeneric, {8, 2, 96, 64, DType::kBF16}},      {kGeneric, {2, 2, 128, 64, DType::kF32}},
    {kGeneric, {2, 1, 256, 32, DType::kF16}},      {kGeneric, {5, 5, 24, 128, DType::kF16}},
    {kGeneric, {3, 1, 10, 16, DType::kBF16}, 11},  {kGeneric, {9, 3, 64, 64, DType::kF16, 100}},
    {kGeneric, {4, 2, 40, 32, DType::kBF16, 37}},  {kGeneric, {8, 8, 16, 16, DType::kF32, 1}},
    {kGeneric, {6, 2, 128, 64, DType::kF32, 600}}, {kGeneric, {32, 1, 8, 128, DType::kBF16}},
};

using Param = std::tuple<AttentionCase, Scenario, bool>;

std::string KernelName(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kGeneric:
      return "generic";
    case AttentionKernel::kMma:
      return "mma";
    case AttentionKernel::kHopper:
      break;
  }
  return "hopper";
}

std::string CaseName(const testing::TestParamInfo<Param>& info) {
  const auto& [test_case, kind, reproducible] = info.param;
  constexpr const char* kNames[] = {"_unrelated", "_shared", "_cached"};
  return KernelName(test_case.kernel) + "_" + test_case.shape.name() +
         kNames[static_cast<int>(kind)] + (reproducible ? "_reproducible" : "");
}

class CudaAttention : public testing::TestWithParam<Param> {
 protected:
  CudaAttention() : scenario_(Make(std::get<1>(GetParam()), test_case().shape)) {}

  const AttentionCase& test_case() const { return std::get<0>(GetParam()); }

  // Calls fn(got, want) in both modes.
  template <class Fn>
  void Compare(const Fn& fn) {
    std::vector<float> want, got;
    ReferenceAttention(scenario_.Args(want));
    EmulatedAttention attention(test_case().kernel, test_case().num_multiprocessors);
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      SCOPED_TRACE(mode == AttentionMode::kPaged ? "paged" : "two_phase");
      ChunkAttentionArgs args = scenario_.Args(got);
      args.mode = mode;
      args.reproducible = std::get<2>(GetParam());
      ASSERT_TRUE(attention.Takes(args));
      const absl::Status status = attention.Attend(args);
      ASSERT_TRUE(status.ok()) << status;
      fn(got, want);
    }
  }

  AttentionScenario scenario_;
};

class CudaAttentionExact : public CudaAttention {};  // products in f32

TEST_P(CudaAttentionExact, MatchesTheReference) {
  Compare([](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectClose(got, want, 2e-5, 2e-5);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaAttentionExact,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Scenario::kUnrelated, Scenario::kShared,
                                                          Scenario::kCached),
                                          testing::Bool()),
                         CaseName);

}  // namespace
}  // namespace refrain::kernels::cuda
