// The Hopper attention kernel on the emulated device against the reference.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/chunk_attention.h"
#include "kernels/reference/attention.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/cuda/emulated_attention.h"

namespace refrain::kernels::cuda {
namespace {

constexpr DType kF16 = DType::kF16;
constexpr DType kBF16 = DType::kBF16;

struct HopperCase {
  AttentionShape shape;
  int num_multiprocessors = 4;
};

// Every head dim and every chunk size; groups with 8, 16, 32 and more queries to a tile; numbers of
// thread blocks by rule, one among them.
const HopperCase kCases[] = {
    {{2, 2, 64, 64, kF16}, 1}, {{4, 1, 64, 16, kBF16}},       {{3, 1, 64, 128, kBF16, 100}, 7},
    {{1, 1, 96, 64, kBF16}},   {{4, 2, 96, 32, kF16}, 3},     {{2, 2, 128, 64, kBF16}, 5},
    {{4, 1, 128, 64, kF16}},   {{4, 1, 128, 128, kBF16}, 13}, {{3, 1, 128, 16, kF16, 70}},
    {{20, 1, 64, 32, kBF16}},  {{1, 1, 256, 64, kF16}, 2},    {{2, 1, 256, 128, kBF16}},
};
// The reference takes most of the time, hence not all of them once more.
const HopperCase kRoundedCases[] = {kCases[0], kCases[3], kCases[7]};

class HopperAttention : public testing::TestWithParam<std::tuple<HopperCase, Scenario>> {
 protected:
  HopperAttention() : scenario_(MakeScenario(std::get<1>(GetParam()), test_case().shape)) {}

  const HopperCase& test_case() const { return std::get<0>(GetParam()); }

  // Calls fn(got, want) in both modes.
  template <class Fn>
  void Compare(const Fn& fn) {
    std::vector<float> want, got;
    const ChunkAttentionArgs reference = scenario_.Args(want);
    ReferenceAttention(reference);
    EmulatedAttention attention(AttentionKernel::kHopper, test_case().num_multiprocessors);
    attention.SetPool(reference.kv, NumChunks(reference.plan), reference.layer);
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      SCOPED_TRACE(mode == AttentionMode::kPaged ? "paged" : "two_phase");
      ChunkAttentionArgs args = scenario_.Args(got);
      args.mode = mode;
      ASSERT_TRUE(attention.Takes(args));
      const absl::Status status = attention.Attend(args);
      ASSERT_TRUE(status.ok()) << status;
      fn(got, want);
    }
  }

  AttentionScenario scenario_;
};

// Scores and weights that f16 and bf16 hold exactly: what is left is the order of sums in f32.
TEST_P(HopperAttention, MatchesTheReferenceOnWholeScores) {
  scenario_.MakeScoresWhole();
  Compare([](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectClose(got, want, 2e-5, 2e-5);
  });
}

class HopperAttentionRounded : public HopperAttention {};

// Rounding q and a weight to bf16 moves the weight by up to 2^-9 each, times the size of the score
// (about 2 here), at random; to f16 by an eighth of that. A key too many or too few is 2^-5 of an
// output row.
TEST_P(HopperAttentionRounded, StaysWithinItsRounding) {
  Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectRowsClose(got, want, test_case().shape.head_dim,
                    test_case().shape.kv_dtype == kF16 ? 0x1p-9 : 0x1p-6);
  });
}

std::string CaseName(const testing::TestParamInfo<HopperAttention::ParamType>& info) {
  const auto& [test_case, kind] = info.param;
  constexpr const char* kNames[] = {"_unrelated", "_shared", "_cached"};
  return test_case.shape.name() + kNames[static_cast<int>(kind)];
}

const auto kScenarios = testing::Values(Scenario::kUnrelated, Scenario::kShared, Scenario::kCached);
INSTANTIATE_TEST_SUITE_P(Cases, HopperAttention,
                         testing::Combine(testing::ValuesIn(kCases), kScenarios), CaseName);
INSTANTIATE_TEST_SUITE_P(Cases, HopperAttentionRounded,
                         testing::Combine(testing::ValuesIn(kRoundedCases), kScenarios), CaseName);

}  // namespace
}  // namespace refrain::kernels::cuda
