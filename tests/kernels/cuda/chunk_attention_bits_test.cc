// With `reproducible`, the bits of a row depend on the row's own keys only (DESIGN section 5): the
// claims of the conformance suite's attention_bits_test.cc for the CUDA kernels, on the emulated
// device.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/cuda/emulated_attention.h"

namespace refrain::kernels::cuda {
namespace {

struct BitsCase {
  AttentionKernel kernel;
  AttentionShape shape;
};

const BitsCase kFullCases[] = {
    {AttentionKernel::kGeneric, {2, 1, 24, 64, DType::kF16}},
    {AttentionKernel::kMma, {4, 1, 64, 64, DType::kBF16}},
};
const BitsCase kWindowCases[] = {
    {AttentionKernel::kGeneric, {2, 2, 16, 32, DType::kF32, 300}},
    {AttentionKernel::kMma, {2, 2, 64, 32, DType::kF16, 90}},
};

class CudaAttentionBits : public testing::TestWithParam<BitsCase> {
 protected:
  const AttentionShape& shape() const { return GetParam().shape; }
  int64_t cols() const { return int64_t{shape().num_heads} * shape().head_dim; }

  std::vector<float> Attend(AttentionScenario& scenario, int num_multiprocessors = 3,
                            AttentionMode mode = AttentionMode::kTwoPhase) const {
    std::vector<float> out;
    ChunkAttentionArgs args = scenario.Args(out);
    args.mode = mode;
    args.reproducible = true;
    const absl::Status status =
        EmulatedAttention(GetParam().kernel, num_multiprocessors).Attend(args);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  // The rows of `step` out of an output.
  std::vector<float> Rows(const std::vector<float>& out, const SlotStep& step) const {
    const auto first = out.begin() + step.row_begin * cols();
    return {first, first + step.num_rows * cols()};
  }
};

class CudaAttentionBitsFull : public CudaAttentionBits {};    // no window
class CudaAttentionBitsWindow : public CudaAttentionBits {};  // a sliding window

// Alone, and in a batch where runs are shared with others.
TEST_P(CudaAttentionBits, AreTheSameAloneAndInABatch) {
  for (const auto make : {SharedRuns, RowsThatReadCachedKeys}) {
    AttentionScenario scenario = make(shape());
    const std::vector<float> together = Attend(scenario);
    const std::vector<SlotStep> steps = scenario.steps();
    for (size_t slot = 0; slot < steps.size(); ++slot) {
      if (steps[slot].num_rows == 0) continue;
      std::ranges::fill(scenario.steps(), SlotStep{});
      scenario.steps()[slot] = steps[slot];
      EXPECT_EQ(Rows(Attend(scenario), steps[slot]), Rows(together, steps[slot])) << slot;
    }
  }
}

// Some rows of each prefill, as decode steps of their own.
TEST_P(CudaAttentionBits, AreTheSameInPrefillAndInDecode) {
  AttentionScenario scenario = UnrelatedSlots(shape());
  const std::vector<float> together = Attend(scenario);
  const std::vector<SlotStep> steps = scenario.steps();
  for (size_t slot = 0; slot < steps.size(); ++slot) {
    for (int i = 0; i < steps[slot].num_rows; i += 7) {
      std::ranges::fill(scenario.steps(), SlotStep{});
      SlotStep& step = scenario.steps()[slot];
      step.num_rows = 1;
      step.row_begin = steps[slot].row_begin + i;
      step.key_end = steps[slot].key_end - steps[slot].num_rows + i + 1;
      ASSERT_EQ(Rows(Attend(scenario), step), Rows(together, step)) << slot << " row " << i;
    }
  }
}

TEST_P(CudaAttentionBits, AreTheSameOnAnyNumberOfBlocksAndInBothModes) {
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape());
    const std::vector<float> want = Attend(scenario);
    for (const int multiprocessors : {1, 16}) {
      EXPECT_EQ(Attend(scenario, multiprocessors), want) << multiprocessors;
      EXPECT_EQ(Attend(scenario, multiprocessors, AttentionMode::kPaged), want) << multiprocessors;
    }
  }
}

// The same 1,100 keys once in full chunks and once with part-full chunks and runs between them.
TEST_P(CudaAttentionBitsFull, AreTheSameWhereverChunksAndRunsEnd) {
  const int c = shape().chunk_tokens;
  constexpr int kKeys = 1100;
  std::vector<float> outs[2];
  for (const bool ragged : {false, true}) {
    AttentionScenario scenario(shape(), 1, 3 * kKeys / c + 8);
    for (int done = 0; done < kKeys;) {
      std::vector<int> counts;
      const int first = done;
      const int run_end = ragged ? std::min(kKeys, done + 3 * c + 5) : kKeys;
      for (int i = 0; done < run_end; ++i) {
        counts.push_back(std::min(ragged ? (i % 2 == 0 ? c - 3 : 1) : c, run_end - done));
        done += counts.back();
      }
      scenario.Attend(scenario.AddRun(counts, first), 0);
    }
    scenario.Activate(0, 33);
    scenario.Finish();
    outs[ragged] = Attend(scenario);
  }
  EXPECT_EQ(outs[0], outs[1]);
}

// Keys before SlotStep::key_begin are not read: leaving them out changes no bit when no row's
// window reaches them.
TEST_P(CudaAttentionBitsWindow, AreTheSameWithKeysBeforeTheWindowLeftOut) {
  AttentionScenario scenario = UnrelatedSlots(shape());
  const std::vector<float> want = Attend(scenario);
  bool left_out = false;
  for (SlotStep& step : scenario.steps()) {
    if (step.num_rows == 0) continue;
    // Positions grow by one at least from key to key.
    step.key_begin = std::max(0, step.key_end - step.num_rows - shape().window_tokens);
    left_out |= step.key_begin > 0;
  }
  ASSERT_TRUE(left_out);
  EXPECT_EQ(Attend(scenario), want);
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
