#include "kernels/cpu/attention_tasks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace refrain::kernels::cpu {
namespace {

constexpr int32_t kChunkTokens = 64;

// The last `rows` of `keys` tokens of one sequence, whose chunks are all in one run.
class OneLongSlot {
 public:
  OneLongSlot(int32_t rows, int32_t keys) : memory_(64) {
    for (int32_t begin = 0; begin < keys; begin += kChunkTokens) {
      chunks_.push_back({begin / kChunkTokens, begin});
    }
    runs_.push_back({0, static_cast<int32_t>(chunks_.size()), 0, 1});
    slots_.push_back({0, 0, kOpenEnd});
    steps_.push_back({rows, 0, 0, keys});
  }

  // Of a model with 32 heads of 128 elements. Nobody reads where the chunks lie.
  ChunkAttentionArgs Args(bool reproducible) {
    ChunkAttentionArgs args;
    args.num_heads = 32;
    args.reproducible = reproducible;
    args.kv.base = memory_.data();
    args.kv.chunk_tokens = kChunkTokens;
    args.kv.num_kv_heads = 8;
    args.kv.head_dim = 128;
    args.plan = {runs_, chunks_, slots_};
    args.steps = steps_;
    return args;
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<AttentionRun> runs_;
  std::vector<RunChunk> chunks_;
  std::vector<RunSlot> slots_;
  std::vector<SlotStep> steps_;
};

int64_t PartialMiB(const AttentionTasks& tasks) {
  return tasks.num_partials() * 128 * static_cast<int64_t>(sizeof(float)) >> 20;
}

// Every row meets every key once, per KV head, in segment tasks alone.
void ExpectAllSplit(const AttentionTasks& tasks, int64_t rows, int64_t keys) {
  int64_t met = 0;
  for (const AttentionTasks::SegmentTask& task : tasks.segment_tasks()) {
    met += int64_t{task.row_end - task.row_begin} * (task.end - task.begin);
    EXPECT_EQ(task.segment_begin % kSegmentKeys, 0);
  }
  EXPECT_EQ(met, rows * keys * 8);
}

TEST(AttentionTasksTest, ManyThreadsShareALongPrefillWithoutMuchMemory) {
  constexpr int32_t kRows = 128, kKeys = 131'072;
  OneLongSlot slot(kRows, kKeys);
  AttentionTasks tasks;
  for (const int threads : {64, 128}) {
    tasks.Plan(slot.Args(false), threads);
    ExpectAllSplit(tasks, kRows, kKeys);
    EXPECT_GE(tasks.segment_tasks().size(), static_cast<size_t>(4 * threads));
    EXPECT_LE(PartialMiB(tasks), 2 * threads) << threads;
    // The cut is not free: rather some threads without work than 512 MiB.
    tasks.Plan(slot.Args(true), threads);
    EXPECT_LE(PartialMiB(tasks), 64) << threads;
    EXPECT_GT(tasks.row_tasks().size(), 64u);
  }
}

TEST(AttentionTasksTest, ThreadsShareALongDecodingSequence) {
  constexpr int32_t kKeys = 131'072;
  OneLongSlot slot(1, kKeys);
  AttentionTasks tasks;
  for (const bool reproducible : {false, true}) {
    for (const int threads : {16, 64}) {
      tasks.Plan(slot.Args(reproducible), threads);
      ExpectAllSplit(tasks, 1, kKeys);
      EXPECT_GE(tasks.segment_tasks().size(), static_cast<size_t>(4 * threads));
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
