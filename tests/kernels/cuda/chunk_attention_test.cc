// The CUDA attention kernels on the emulated device against the reference.

#include "kernels/cuda/chunk_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reference/attention.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/cuda/emulated_attention.h"

namespace refrain::kernels::cuda {
namespace {

struct AttentionCase {
  AttentionKernel kernel;
  AttentionShape shape;
  int num_multiprocessors = 3;
};

constexpr AttentionKernel kGeneric = AttentionKernel::kGeneric;
constexpr AttentionKernel kMma = AttentionKernel::kMma;

// Head dims, chunk sizes, groups and numbers of blocks by rule; KV types take turns.
const AttentionCase kExactCases[] = {
    {kGeneric, {2, 2, 8, 16, DType::kF32}, 1},    {kGeneric, {3, 1, 10, 16, DType::kBF16}, 7},
    {kGeneric, {2, 1, 40, 64, DType::kBF16}},     {kGeneric, {4, 2, 64, 64, DType::kF16}, 5},
    {kGeneric, {2, 1, 80, 128, DType::kF16}},     {kGeneric, {2, 1, 96, 32, DType::kBF16}},
    {kGeneric, {1, 1, 256, 64, DType::kF32}},     {kGeneric, {32, 1, 8, 64, DType::kF16}},
    {kGeneric, {3, 1, 64, 64, DType::kF16, 100}}, {kGeneric, {2, 2, 40, 32, DType::kBF16, 37}},
    {kGeneric, {2, 2, 16, 16, DType::kF32, 1}},   {kGeneric, {2, 1, 24, 64, DType::kF32, 600}},
    {kGeneric, {4, 2, 64, 64, DType::kF8E4M3}},   {kGeneric, {2, 1, 40, 16, DType::kF8E4M3, 37}},
    {kGeneric, {2, 1, 128, 32, DType::kF8E4M3}},
};
const AttentionCase kRoundedCases[] = {
    {kMma, {8, 2, 64, 64, DType::kF16}, 1},      {kMma, {9, 3, 64, 16, DType::kBF16}, 5},
    {kMma, {8, 2, 96, 32, DType::kBF16}},        {kMma, {4, 2, 128, 64, DType::kF16}},
    {kMma, {4, 4, 128, 128, DType::kBF16}},      {kMma, {2, 1, 256, 64, DType::kBF16}},
    {kMma, {32, 1, 64, 64, DType::kBF16}},       {kMma, {80, 1, 64, 64, DType::kF16}},
    {kMma, {6, 2, 96, 64, DType::kF16, 100}, 7}, {kMma, {4, 1, 64, 32, DType::kBF16, 37}},
    {kMma, {9, 3, 64, 64, DType::kF8E4M3}},      {kMma, {4, 2, 96, 16, DType::kF8E4M3, 100}},
    {kMma, {32, 1, 128, 32, DType::kF8E4M3}, 5}, {kMma, {2, 1, 256, 128, DType::kF8E4M3}},
};

using Param = std::tuple<AttentionCase, Scenario>;

std::string CaseName(const testing::TestParamInfo<Param>& info) {
  const auto& [test_case, kind] = info.param;
  constexpr const char* kNames[] = {"_unrelated", "_shared", "_cached"};
  return std::string(Name(test_case.kernel)) + "_" + test_case.shape.name() +
         kNames[static_cast<int>(kind)];
}

class CudaAttention : public testing::TestWithParam<Param> {
 protected:
  CudaAttention() : scenario_(MakeScenario(std::get<1>(GetParam()), test_case().shape)) {}

  const AttentionCase& test_case() const { return std::get<0>(GetParam()); }

  // Calls fn(got, want) in both modes, and reproducible.
  template <class Fn>
  void Compare(const Fn& fn) {
    std::vector<float> want, got;
    const ChunkAttentionArgs reference = scenario_.Args(want);
    ReferenceAttention(reference);
    EmulatedAttention attention(test_case().kernel, test_case().num_multiprocessors);
    attention.SetPool(reference.kv, NumChunks(reference.plan), reference.layer);
    const std::tuple<AttentionMode, bool> variants[] = {{AttentionMode::kTwoPhase, false},
                                                        {AttentionMode::kPaged, false},
                                                        {AttentionMode::kTwoPhase, true}};
    for (const auto& [mode, reproducible] : variants) {
      SCOPED_TRACE(std::string(mode == AttentionMode::kPaged ? "paged" : "two_phase") +
                   (reproducible ? " reproducible" : ""));
      ChunkAttentionArgs args = scenario_.Args(got);
      args.mode = mode;
      args.reproducible = reproducible;
      ASSERT_TRUE(attention.Takes(args));
      const absl::Status status = attention.Attend(args);
      ASSERT_TRUE(status.ok()) << status;
      fn(got, want);
    }
  }

  AttentionScenario scenario_;
};

class CudaAttentionExact : public CudaAttention {};  // products in f32
// q and weights rounded to 16 bits
class CudaAttentionWholeScores : public CudaAttention {};
class CudaAttentionRounded : public CudaAttention {};

// Both sides read the same rounded K and V, so this is f32 arithmetic on values near 1.
constexpr double kTolerance = 2e-5;

TEST_P(CudaAttentionExact, MatchesTheReference) {
  Compare([](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectClose(got, want, kTolerance, kTolerance);
  });
}

// On scores and weights that 16 bits hold exactly, tensor cores are no less exact.
TEST_P(CudaAttentionWholeScores, MatchTheReference) {
  scenario_.MakeScoresWhole();
  Compare([](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectClose(got, want, kTolerance, kTolerance);
  });
}

// Rounding q and a weight moves the weight by up to 2^-9 (bf16, also over fp8) or 2^-12 (f16) each,
// times the size of the score, at random: see attention_test.cc of the conformance suite.
TEST_P(CudaAttentionRounded, StaysWithinItsRounding) {
  const size_t d = test_case().shape.head_dim;
  const double limit = test_case().shape.kv_dtype == DType::kF16 ? 0x1p-9 : 0x1p-6;
  Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectRowsClose(got, want, d, limit);
  });
}

// Each case with one scenario; they take turns.
template <size_t kCases>
std::vector<Param> WithScenarios(const AttentionCase (&cases)[kCases], int first) {
  constexpr Scenario kScenarios[] = {Scenario::kUnrelated, Scenario::kShared, Scenario::kCached};
  std::vector<Param> params;
  for (size_t i = 0; i < kCases; ++i) params.push_back({cases[i], kScenarios[(first + i) % 3]});
  return params;
}

// Hopper's kernel reads K and V in 16 bits where they lie; of E4M3 the next one has its head dims,
// on every card.
TEST(CudaAttentionChoice, OfE4m3IsTheFastestKernelThatHasIt) {
  for (const int capability : {80, 89, 90, 100}) {
    const AttentionDevice device = {.compute_capability = capability,
                                    .num_multiprocessors = 108,
                                    .shared_bytes_per_block = 227 << 10,
                                    .shared_bytes_per_multiprocessor = 228 << 10};
    for (const int head_dim : {40, 64, 80, 96, 128, 256}) {
      for (const bool reproducible : {false, true}) {
        const AttentionShapeInfo shape = {.num_heads = 8,
                                          .num_kv_heads = 2,
                                          .head_dim = head_dim,
                                          .kv_dtype = DType::kF8E4M3,
                                          .reproducible = reproducible};
        EXPECT_FALSE(Supports(AttentionKernel::kHopper, shape, device));
        EXPECT_TRUE(Supports(kGeneric, shape, device));
        EXPECT_EQ(SetUpAttention(shape, device).kernel,
                  head_dim == 40 || head_dim == 80 ? kGeneric : kMma)
            << capability << " " << head_dim;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Generic, CudaAttentionExact,
                         testing::ValuesIn(WithScenarios(kExactCases, 0)), CaseName);
INSTANTIATE_TEST_SUITE_P(Mma, CudaAttentionWholeScores,
                         testing::ValuesIn(WithScenarios(kRoundedCases, 0)), CaseName);
INSTANTIATE_TEST_SUITE_P(Mma, CudaAttentionRounded,
                         testing::ValuesIn(WithScenarios(kRoundedCases, 1)), CaseName);

}  // namespace
}  // namespace refrain::kernels::cuda
