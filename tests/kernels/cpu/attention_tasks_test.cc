#include "kernels/cpu/attention_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace refrain::kernels::cpu {
namespace {

constexpr int32_t kChunkTokens = 64;

// Sequences of their own chunks, each one run, of which the last `rows` of `keys` tokens are asked.
class Slots {
 public:
  struct One {
    int32_t rows, keys;
  };

  explicit Slots(const std::vector<One>& all) : memory_(64) {
    int32_t row = 0;
    for (const One& one : all) {
      const auto slot = static_cast<int32_t>(steps_.size());
      const auto first = static_cast<int32_t>(chunks_.size());
      for (int32_t begin = 0; begin < one.keys; begin += kChunkTokens) {
        chunks_.push_back({static_cast<int32_t>(chunks_.size()), begin});
      }
      runs_.push_back({first, static_cast<int32_t>(chunks_.size()), slot, slot + 1});
      slots_.push_back({slot, 0, kOpenEnd});
      steps_.push_back({one.rows, row, 0, one.keys});
      row += one.rows;
    }
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
  Slots slot({{kRows, kKeys}});
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
  Slots slot({{1, kKeys}});
  AttentionTasks tasks;
  for (const bool reproducible : {false, true}) {
    for (const int threads : {16, 64}) {
      tasks.Plan(slot.Args(reproducible), threads);
      ExpectAllSplit(tasks, 1, kKeys);
      EXPECT_GE(tasks.segment_tasks().size(), static_cast<size_t>(4 * threads));
    }
  }
}

// The time that `threads` threads take which get the next task whenever they are free.
template <class Task>
int64_t Makespan(std::span<const Task> tasks, int threads) {
  std::vector<int64_t> busy_until(static_cast<size_t>(threads));
  for (const Task& task : tasks)
    *std::min_element(busy_until.begin(), busy_until.end()) += task.cost;
  return *std::max_element(busy_until.begin(), busy_until.end());
}

// A few long sequences among many short ones, prefills among decodes: every thread reads as much.
TEST(AttentionTasksTest, ThreadsGetEqualPartsOfMixedLengths) {
  std::vector<Slots::One> decodes = {{1, 60'000}, {1, 9'000}};
  for (int32_t i = 0; i < 30; ++i) decodes.push_back({1, 64 + 37 * i});
  std::vector<Slots::One> mixed = decodes;
  mixed.push_back({128, 20'000});
  mixed.push_back({64, 500});
  for (const std::vector<Slots::One>& sequences :
       {decodes, mixed, std::vector<Slots::One>{{1, 30'000}, {1, 100}}}) {
    Slots slots(sequences);
    AttentionTasks tasks;
    for (const int threads : {2, 3, 4, 16, 64}) {
      tasks.Plan(slots.Args(false), threads);
      int64_t cost = 0;
      for (const auto& task : tasks.segment_tasks()) cost += task.cost;
      for (const auto& task : tasks.row_tasks()) cost += task.cost;
      // Per KV head no less than the keys that are read.
      int64_t keys = 0;
      for (const Slots::One& one : sequences) keys += one.keys;
      EXPECT_GE(cost, keys * 8);
      const int64_t taken =
          Makespan(tasks.segment_tasks(), threads) + Makespan(tasks.row_tasks(), threads);
      const double equal = static_cast<double>(cost) / threads;
      EXPECT_LT(static_cast<double>(taken), (threads <= 16 ? 1.05 : 1.25) * equal)
          << sequences.size() << " sequences, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
