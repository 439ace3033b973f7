#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/conformance/attention_bits.h"
#include "tests/kernels/cuda/emulated_attention.h"

// The promises of attention_bits.h for the CUDA kernels, on the emulated device.

namespace refrain::kernels::cuda {
namespace {

struct BitsCase {
  AttentionKernel kernel;
  AttentionShape shape;
};

const BitsCase kFullCases[] = {
    {AttentionKernel::kGeneric, {2, 1, 24, 64, DType::kF16}},
    {AttentionKernel::kMma, {4, 1, 64, 64, DType::kBF16}},
    {AttentionKernel::kMma, {4, 2, 64, 64, DType::kF8E4M3}},
};
const BitsCase kWindowCases[] = {
    {AttentionKernel::kGeneric, {2, 2, 16, 32, DType::kF32, 300}},
    {AttentionKernel::kMma, {2, 2, 64, 32, DType::kF16, 90}},
    {AttentionKernel::kGeneric, {2, 2, 16, 32, DType::kF8E4M3, 60}},
};
constexpr MakeScenarioFunction kWithCachedKeys[] = {SharedRuns, RowsThatReadCachedKeys};
constexpr MakeScenarioFunction kWithUnrelated[] = {UnrelatedSlots, SharedRuns};

AttendFunction By(AttentionKernel kernel, int num_multiprocessors) {
  return [=](const ChunkAttentionArgs& args) {
    const absl::Status status = EmulatedAttention(kernel, num_multiprocessors).Attend(args);
    EXPECT_TRUE(status.ok()) << status;
  };
}

class CudaAttentionBits : public testing::TestWithParam<BitsCase> {
 protected:
  AttentionKernel kernel() const { return GetParam().kernel; }
  const AttentionBits bits_{GetParam().shape, By(kernel(), 3)};
};
class CudaAttentionBitsFull : public CudaAttentionBits {};    // no window
class CudaAttentionBitsWindow : public CudaAttentionBits {};  // a sliding window

TEST_P(CudaAttentionBits, AreTheSameAloneAndInABatch) {
  bits_.ExpectSameAloneAndInABatch(kWithCachedKeys);
}

TEST_P(CudaAttentionBits, AreTheSameInPrefillAndInDecode) {
  bits_.ExpectSameInPrefillAndInDecode(7);
}

TEST_P(CudaAttentionBits, AreTheSameOnAnyNumberOfBlocksAndInBothModes) {
  std::vector<AttentionBits::Other> others;
  for (const int multiprocessors : {1, 16}) {
    others.push_back({std::to_string(multiprocessors), By(kernel(), multiprocessors)});
  }
  bits_.ExpectSameOnOthersAndInBothModes(kWithUnrelated, others);
}

TEST_P(CudaAttentionBitsFull, AreTheSameWhereverChunksAndRunsEnd) {
  bits_.ExpectSameWhereverChunksAndRunsEnd(1100);
}

TEST_P(CudaAttentionBitsWindow, AreTheSameWithKeysBeforeTheWindowLeftOut) {
  bits_.ExpectSameWithKeysBeforeTheWindowLeftOut();
}

std::string CaseName(const testing::TestParamInfo<BitsCase>& info) {
  return std::string(Name(info.param.kernel)) + "_" + info.param.shape.name();
}

const auto kFull = testing::ValuesIn(kFullCases);
const auto kWindow = testing::ValuesIn(kWindowCases);
INSTANTIATE_TEST_SUITE_P(Full, CudaAttentionBits, kFull, CaseName);
INSTANTIATE_TEST_SUITE_P(Window, CudaAttentionBits, kWindow, CaseName);
INSTANTIATE_TEST_SUITE_P(Full, CudaAttentionBitsFull, kFull, CaseName);
INSTANTIATE_TEST_SUITE_P(Window, CudaAttentionBitsWindow, kWindow, CaseName);

}  // namespace
}  // namespace refrain::kernels::cuda
