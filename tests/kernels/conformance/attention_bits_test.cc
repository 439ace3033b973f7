#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/conformance/attention_levels.h"
#include "tests/kernels/conformance/attention_scenario.h"

// With `reproducible`, the bits of a row depend on the row's own keys only (DESIGN section 5).

namespace refrain::kernels {
namespace {

// The last has heads enough for tasks of several segments.
const AttentionShape kFullShapes[] = {
    {9, 3, 64, 64, DType::kF16}, {8, 2, 40, 16, DType::kBF16},  {4, 1, 128, 32, DType::kF32},
    {7, 7, 24, 64, DType::kF16}, {16, 16, 16, 32, DType::kF16}, {6, 2, 64, 64, DType::kBF16},
};
const AttentionShape kWindowShapes[] = {
    {6, 2, 64, 64, DType::kF32, 90},
    {4, 2, 40, 32, DType::kF16, 300},
    {4, 2, 48, 16, DType::kBF16, 77},
};

class AttentionBits : public testing::TestWithParam<std::tuple<AttentionShape, AttentionLevel>> {
 protected:
  const AttentionShape& shape() const { return std::get<0>(GetParam()); }
  int64_t cols() const { return int64_t{shape().num_heads} * shape().head_dim; }

  std::vector<float> Attend(AttentionScenario& scenario, const AttentionLevel& level,
                            AttentionMode mode = AttentionMode::kTwoPhase) const {
    std::vector<float> out;
    ChunkAttentionArgs args = scenario.Args(out);
    args.mode = mode;
    args.reproducible = true;
    level.Attend(args);
    return out;
  }

  std::vector<float> Attend(AttentionScenario& scenario) const {
    return Attend(scenario, std::get<1>(GetParam()));
  }

  // The rows of `step` out of an output.
  std::vector<float> Rows(const std::vector<float>& out, const SlotStep& step) const {
    const auto first = out.begin() + step.row_begin * cols();
    return {first, first + step.num_rows * cols()};
  }
};

class AttentionBitsFull : public AttentionBits {};    // no window
class AttentionBitsWindow : public AttentionBits {};  // a sliding window

TEST_P(AttentionBits, AreTheSameAloneAndInABatch) {
  for (const auto make : {UnrelatedSlots, SharedRuns, RowsThatReadCachedKeys}) {
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

// The rows of a prefill, each as a decode step of its own.
TEST_P(AttentionBits, AreTheSameInPrefillAndInDecode) {
  AttentionScenario scenario = UnrelatedSlots(shape());
  const std::vector<float> together = Attend(scenario);
  const std::vector<SlotStep> steps = scenario.steps();
  for (size_t slot = 0; slot < steps.size(); ++slot) {
    for (int i = 0; i < steps[slot].num_rows; ++i) {
      std::ranges::fill(scenario.steps(), SlotStep{});
      SlotStep& step = scenario.steps()[slot];
      step.num_rows = 1;
      step.row_begin = steps[slot].row_begin + i;
      step.key_end = steps[slot].key_end - steps[slot].num_rows + i + 1;
      ASSERT_EQ(Rows(Attend(scenario), step), Rows(together, step)) << slot << " row " << i;
    }
  }
}

TEST_P(AttentionBits, AreTheSameOnAnyNumberOfThreadsAndInBothModes) {
  for (const auto make : {UnrelatedSlots, SharedRuns, RowsThatReadCachedKeys}) {
    AttentionScenario scenario = make(shape());
    const std::vector<float> want = Attend(scenario);
    for (const int threads : {2, 3, 8}) {
      const AttentionLevel level = std::get<1>(GetParam()).On(threads);
      EXPECT_EQ(Attend(scenario, level, AttentionMode::kTwoPhase), want) << threads;
      EXPECT_EQ(Attend(scenario, level, AttentionMode::kPaged), want) << threads;
    }
  }
}

// The same 700 keys once in full chunks and once with part-full chunks and runs between them.
TEST_P(AttentionBitsFull, AreTheSameWhereverChunksAndRunsEnd) {
  const int c = shape().chunk_tokens;
  constexpr int kKeys = 700;
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
// window reaches them, and what lies there may be gone.
TEST_P(AttentionBitsWindow, AreTheSameWithKeysBeforeTheWindowLeftOut) {
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

std::string CaseName(
    const testing::TestParamInfo<std::tuple<AttentionShape, AttentionLevel>>& info) {
  return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name();
}

const auto kFull =
    testing::Combine(testing::ValuesIn(kFullShapes), testing::ValuesIn(AttentionLevels()));
const auto kWindow =
    testing::Combine(testing::ValuesIn(kWindowShapes), testing::ValuesIn(AttentionLevels()));
INSTANTIATE_TEST_SUITE_P(Full, AttentionBits, kFull, CaseName);
INSTANTIATE_TEST_SUITE_P(Window, AttentionBits, kWindow, CaseName);
INSTANTIATE_TEST_SUITE_P(Full, AttentionBitsFull, kFull, CaseName);
INSTANTIATE_TEST_SUITE_P(Window, AttentionBitsWindow, kWindow, CaseName);

}  // namespace
}  // namespace refrain::kernels
