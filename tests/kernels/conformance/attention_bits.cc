#include "tests/kernels/conformance/attention_bits.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace refrain::kernels {

std::vector<float> AttentionBits::Attend(AttentionScenario& scenario, const AttendFunction& attend,
                                         AttentionMode mode) const {
  std::vector<float> out;
  ChunkAttentionArgs args = scenario.Args(out);
  args.mode = mode;
  args.reproducible = true;
  attend(args);
  return out;
}

std::vector<float> AttentionBits::Attend(AttentionScenario& scenario) const {
  return Attend(scenario, attend_, AttentionMode::kTwoPhase);
}

std::vector<float> AttentionBits::Rows(const std::vector<float>& out, const SlotStep& step) const {
  const int64_t cols = int64_t{shape_.num_heads} * shape_.head_dim;
  const auto first = out.begin() + step.row_begin * cols;
  return {first, first + step.num_rows * cols};
}

void AttentionBits::ExpectSameAloneAndInABatch(
    std::span<const MakeScenarioFunction> scenarios) const {
  for (const MakeScenarioFunction make : scenarios) {
    AttentionScenario scenario = make(shape_);
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

void AttentionBits::ExpectSameInPrefillAndInDecode(int every) const {
  AttentionScenario scenario = UnrelatedSlots(shape_);
  const std::vector<float> together = Attend(scenario);
  const std::vector<SlotStep> steps = scenario.steps();
  for (size_t slot = 0; slot < steps.size(); ++slot) {
    for (int i = 0; i < steps[slot].num_rows; i += every) {
      std::ranges::fill(scenario.steps(), SlotStep{});
      SlotStep& step = scenario.steps()[slot];
      step.num_rows = 1;
      step.row_begin = steps[slot].row_begin + i;
      step.key_end = steps[slot].key_end - steps[slot].num_rows + i + 1;
      ASSERT_EQ(Rows(Attend(scenario), step), Rows(together, step)) << slot << " row " << i;
    }
  }
}

void AttentionBits::ExpectSameOnOthersAndInBothModes(
    std::span<const MakeScenarioFunction> scenarios, std::span<const Other> others) const {
  for (const MakeScenarioFunction make : scenarios) {
    AttentionScenario scenario = make(shape_);
    const std::vector<float> want = Attend(scenario);
    for (const Other& other : others) {
      EXPECT_EQ(Attend(scenario, other.attend, AttentionMode::kTwoPhase), want) << other.name;
      EXPECT_EQ(Attend(scenario, other.attend, AttentionMode::kPaged), want) << other.name;
    }
  }
}

void AttentionBits::ExpectSameWhereverChunksAndRunsEnd(int keys) const {
  const int c = shape_.chunk_tokens;
  std::vector<float> outs[2];
  for (const bool ragged : {false, true}) {
    AttentionScenario scenario(shape_, 1, 3 * keys / c + 8);
    for (int done = 0; done < keys;) {
      std::vector<int> counts;
      const int first = done;
      const int run_end = ragged ? std::min(keys, done + 3 * c + 5) : keys;
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

void AttentionBits::ExpectSameWithKeysBeforeTheWindowLeftOut() const {
  AttentionScenario scenario = UnrelatedSlots(shape_);
  const std::vector<float> want = Attend(scenario);
  bool left_out = false;
  for (SlotStep& step : scenario.steps()) {
    if (step.num_rows == 0) continue;
    // Positions grow by one at least from key to key.
    step.key_begin = std::max(0, step.key_end - step.num_rows - shape_.window_tokens);
    left_out |= step.key_begin > 0;
  }
  ASSERT_TRUE(left_out);
  EXPECT_EQ(Attend(scenario), want);
}

}  // namespace refrain::kernels
