#include "engine/largest_steps.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace refrain::engine {
namespace {

struct Work {
  int32_t rows, key_begin, keys;
  friend bool operator==(const Work&, const Work&) = default;
  friend void PrintTo(const Work& work, std::ostream* out) {
    *out << work.rows << " rows of " << work.keys << " keys from " << work.key_begin;
  }
};

// Of the slots that take part, after a look at what all steps have.
std::vector<Work> WorkOf(const StepBatch& step, const StepLimits& limits) {
  std::vector<Work> work;
  std::set<int32_t> chunks;
  int32_t rows = 0;
  EXPECT_EQ(std::ssize(step.slots), limits.max_sequences);
  for (size_t i = 0; i < step.slots.size(); ++i) {
    const kernels::SlotStep& slot = step.slots[i];
    if (slot.num_rows == 0) continue;
    EXPECT_EQ(slot.row_begin, rows);
    rows += slot.num_rows;
    const kernels::AttentionRun& run = step.plan->runs[i];
    EXPECT_EQ(run.slot_begin, static_cast<int32_t>(i));
    EXPECT_EQ(step.plan->slots[i].slot, static_cast<int32_t>(i));
    const int32_t room = (run.chunk_end - run.chunk_begin) * limits.chunk_tokens;
    EXPECT_TRUE(slot.key_end <= room && slot.key_end > room - limits.chunk_tokens);
    work.push_back({slot.num_rows, slot.key_begin, slot.key_end});
  }
  EXPECT_LE(rows, std::ssize(step.tokens));
  for (const kernels::RunChunk& chunk : step.plan->chunks) {
    EXPECT_TRUE(chunk.chunk >= 0 && chunk.chunk < limits.num_chunks);
    EXPECT_TRUE(chunks.insert(chunk.chunk).second) << chunk.chunk;
  }
  EXPECT_EQ(chunks.count(limits.num_chunks - 1), 1u);
  return work;
}

TEST(LargestStepsTest, APoolThatIsLargeGivesEveryoneAllTheContext) {
  const StepLimits limits = {.max_sequences = 3,
                             .max_rows = 150,
                             .max_context_tokens = 100,
                             .chunk_tokens = 16,
                             .num_chunks = 1000};
  const std::vector<StepBatch> steps = LargestSteps(limits);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].tokens.size(), 150u);
  EXPECT_EQ(WorkOf(steps[0], limits), (std::vector<Work>{{100, 0, 100}, {50, 0, 50}}));
  EXPECT_EQ(steps[1].tokens.size(), 3u);
  EXPECT_EQ(WorkOf(steps[1], limits), (std::vector<Work>(3, {1, 0, 100})));
  EXPECT_EQ(steps[2].tokens.size(), 1u);
  EXPECT_EQ(WorkOf(steps[2], limits), (std::vector<Work>{{1, 0, 100}}));
}

// Rows beyond the pool are still counted: those of cached tokens can come in several sequences.
TEST(LargestStepsTest, APoolThatIsSmallIsSharedOut) {
  const StepLimits limits = {.max_sequences = 8,
                             .max_rows = 512,
                             .max_context_tokens = 2048,
                             .window_tokens = 40,
                             .chunk_tokens = 16,
                             .num_chunks = 5};
  const std::vector<StepBatch> steps = LargestSteps(limits);
  EXPECT_EQ(steps[0].tokens.size(), 512u);
  EXPECT_EQ(WorkOf(steps[0], limits), (std::vector<Work>{{80, 0, 80}}));
  EXPECT_EQ(WorkOf(steps[1], limits), (std::vector<Work>(5, {1, 0, 16})));
  EXPECT_EQ(WorkOf(steps[2], limits), (std::vector<Work>{{1, 40, 80}}));
}

TEST(LargestStepsTest, FewRowsAreFewSequences) {
  const StepLimits limits = {.max_sequences = 8,
                             .max_rows = 2,
                             .max_context_tokens = 10,
                             .chunk_tokens = 16,
                             .num_chunks = 20};
  const std::vector<StepBatch> steps = LargestSteps(limits);
  EXPECT_EQ(WorkOf(steps[0], limits), (std::vector<Work>{{2, 0, 2}}));
  EXPECT_EQ(WorkOf(steps[1], limits), (std::vector<Work>(2, {1, 0, 10})));
}

}  // namespace
}  // namespace refrain::engine
