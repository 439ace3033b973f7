#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/conformance/attention_bits.h"
#include "tests/kernels/conformance/attention_levels.h"

// The promises of attention_bits.h for every level of the CPU back end.

namespace refrain::kernels {
namespace {

// Those of 16 KV heads have enough for tasks of several segments.
const AttentionShape kFullShapes[] = {
    {9, 3, 64, 64, DType::kF16},    {8, 2, 40, 16, DType::kBF16},   {4, 1, 128, 32, DType::kF32},
    {7, 7, 24, 64, DType::kF16},    {16, 16, 16, 32, DType::kF16},  {6, 2, 64, 64, DType::kBF16},
    {6, 2, 64, 32, DType::kF8E4M3}, {16, 16, 16, 32, DType::kBF16},
};
const AttentionShape kWindowShapes[] = {
    {6, 2, 64, 64, DType::kF32, 90},
    {4, 2, 40, 32, DType::kF16, 300},
    {4, 2, 48, 16, DType::kBF16, 77},
    {4, 2, 40, 32, DType::kF8E4M3, 77},
};
constexpr MakeScenarioFunction kScenarios[] = {UnrelatedSlots, SharedRuns, RowsThatReadCachedKeys};

using Param = std::tuple<AttentionShape, AttentionLevel>;

AttendFunction By(const AttentionLevel& level) {
  return [level](const ChunkAttentionArgs& args) { level.Attend(args); };
}

class CpuAttentionBits : public testing::TestWithParam<Param> {
 protected:
  const AttentionLevel& level() const { return std::get<1>(GetParam()); }
  const AttentionBits bits_{std::get<0>(GetParam()), By(level())};
};
class CpuAttentionBitsFull : public CpuAttentionBits {};    // no window
class CpuAttentionBitsWindow : public CpuAttentionBits {};  // a sliding window

TEST_P(CpuAttentionBits, AreTheSameAloneAndInABatch) {
  bits_.ExpectSameAloneAndInABatch(kScenarios);
}

TEST_P(CpuAttentionBits, AreTheSameInPrefillAndInDecode) {
  bits_.ExpectSameInPrefillAndInDecode(1);
}

TEST_P(CpuAttentionBits, AreTheSameOnAnyNumberOfThreadsAndInBothModes) {
  std::vector<AttentionBits::Other> others;
  for (const int threads : {2, 3, 8}) {
    others.push_back({std::to_string(threads) + " threads", By(level().On(threads))});
  }
  bits_.ExpectSameOnOthersAndInBothModes(kScenarios, others);
}

TEST_P(CpuAttentionBitsFull, AreTheSameWhereverChunksAndRunsEnd) {
  bits_.ExpectSameWhereverChunksAndRunsEnd(700);
}

TEST_P(CpuAttentionBitsWindow, AreTheSameWithKeysBeforeTheWindowLeftOut) {
  bits_.ExpectSameWithKeysBeforeTheWindowLeftOut();
}

std::string CaseName(const testing::TestParamInfo<Param>& info) {
  return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name();
}

const auto kFull =
    testing::Combine(testing::ValuesIn(kFullShapes), testing::ValuesIn(AttentionLevels()));
const auto kWindow =
    testing::Combine(testing::ValuesIn(kWindowShapes), testing::ValuesIn(AttentionLevels()));
INSTANTIATE_TEST_SUITE_P(Full, CpuAttentionBits, kFull, CaseName);
INSTANTIATE_TEST_SUITE_P(Window, CpuAttentionBits, kWindow, CaseName);
INSTANTIATE_TEST_SUITE_P(Full, CpuAttentionBitsFull, kFull, CaseName);
INSTANTIATE_TEST_SUITE_P(Window, CpuAttentionBitsWindow, kWindow, CaseName);

}  // namespace
}  // namespace refrain::kernels
