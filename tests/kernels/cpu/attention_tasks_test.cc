#include "kernels/cpu/attention_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "tests/kernels/cpu/attention_sharers.h"

namespace {

int news_until_refusal = -1;  // -1: none is refused

}  // namespace

void* operator new(std::size_t bytes) {
  if (news_until_refusal == 0) throw std::bad_alloc();
  if (news_until_refusal > 0) --news_until_refusal;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// Asked by std::stable_sort; never refused. A sanitizer's would not fit the delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace refrain::kernels::cpu {
namespace {

// Sequences of their own chunks, each one run, of which the last `rows` of `keys` tokens are asked.
class Slots {
 public:
  struct One {
    int32_t rows, keys;
  };

  explicit Slots(const std::vector<One>& all) : memory_(64), positions_(1) {
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
    args.kv.positions = positions_.data();
    args.plan = {runs_, chunks_, slots_};
    args.steps = steps_;
    return args;
  }
  std::vector<SlotStep>& steps() { return steps_; }

 private:
  std::vector<std::byte> memory_;
  std::vector<int32_t> positions_;
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
    tasks.Plan(slot.Args(false), threads, /*shares_by_keys=*/false);
    ExpectAllSplit(tasks, kRows, kKeys);
    EXPECT_GE(tasks.segment_tasks().size(), static_cast<size_t>(4 * threads));
    EXPECT_LE(PartialMiB(tasks), 2 * threads) << threads;
    // The cut is not free: rather some threads without work than 512 MiB.
    tasks.Plan(slot.Args(true), threads, /*shares_by_keys=*/false);
    EXPECT_LE(PartialMiB(tasks), 64) << threads;
    EXPECT_GT(tasks.row_tasks().size(), 64u);
  }
}

// Nor do slots that each are long enough to be cut for all threads.
TEST(AttentionTasksTest, ManyThreadsShareManySlotsWithoutMuchMemory) {
  constexpr int32_t kSlots = 47, kRows = 12, kThreads = 128;
  AttentionTasks tasks;
  for (const int32_t keys : {8192, 65'536}) {
    Slots slots(std::vector<Slots::One>(kSlots, {kRows, keys}));
    tasks.Plan(slots.Args(false), kThreads, /*shares_by_keys=*/false);
    ExpectAllSplit(tasks, int64_t{kSlots} * kRows, keys);
    EXPECT_LE(PartialMiB(tasks), 256) << keys;
    EXPECT_GE(tasks.segment_tasks().size(), static_cast<size_t>(4 * kThreads)) << keys;
    EXPECT_LE(tasks.segment_tasks().size(), static_cast<size_t>(32 * kThreads)) << keys;
    tasks.Plan(slots.Args(true), kThreads, /*shares_by_keys=*/false);
    EXPECT_LE(PartialMiB(tasks), 256) << keys << " reproducible";
  }
}

// Segments behind the first ones leave a state each for every row, so that they can be merged from
// left to right.
TEST(AttentionTasksTest, ManySharersOfALongRunDoNotTakeMuchMemory) {
  constexpr int32_t kSlots = 512, kLead = 64, kCommon = 131'072, kOwn = 80;
  Sharers sharers(kSlots, kCommon, kOwn, kLead);
  sharers.args.reproducible = true;
  AttentionTasks tasks;
  tasks.Plan(sharers.args, /*threads=*/16, /*shares_by_keys=*/true);
  const int64_t bytes = tasks.num_partials() * 64 * static_cast<int64_t>(sizeof(float));
  EXPECT_LE(bytes, 256 << 20);
  EXPECT_GT(bytes, 128 << 20) << "most of it is shared";
  for (int32_t i = 0; i < kSlots; ++i) {
    int32_t end = 0;
    for (const AttentionTasks::Segment& segment : tasks.slot(i).segments) {
      ASSERT_EQ(segment.begin, end);
      ASSERT_EQ(segment.begin % kSegmentKeys, 0);
      end = segment.end;
    }
    ASSERT_EQ(end, kLead + kCommon + kOwn);
  }
}

// Where the cut is free there are fewer and longer tasks rather than keys that everybody reads.
TEST(AttentionTasksTest, ManySharersAndThreadsShareAllOfALongRun) {
  constexpr int32_t kCommon = 131'072;
  Sharers sharers(/*slots=*/128, kCommon, /*own=*/80);
  sharers.args.num_heads = 72;
  AttentionTasks tasks;
  tasks.Plan(sharers.args, /*threads=*/128, /*shares_by_keys=*/true);
  EXPECT_LE(tasks.num_partials() * 64 * static_cast<int64_t>(sizeof(float)), 256 << 20);
  int32_t shared = 0;
  for (const AttentionTasks::Segment& segment : tasks.slot(0).segments) {
    if (segment.partial >= 0) shared += segment.end - segment.begin;
  }
  EXPECT_EQ(shared, kCommon);
}

// Merging what many threads have computed is work for all of them, too.
TEST(AttentionTasksTest, MergingManyStatesIsNotLeftToOneThread) {
  AttentionTasks tasks;
  Slots few({{1, 1024}});
  tasks.Plan(few.Args(false), /*threads=*/4, /*shares_by_keys=*/false);
  EXPECT_LT(tasks.row_cost() * 128, 1 << 17) << "not worth to wake a thread";
  Slots many({{256, 8192}});
  tasks.Plan(many.Args(false), /*threads=*/64, /*shares_by_keys=*/false);
  EXPECT_GT(tasks.row_cost() * 128, 1 << 20);
}

TEST(AttentionTasksTest, ThreadsShareALongDecodingSequence) {
  constexpr int32_t kKeys = 131'072;
  Slots slot({{1, kKeys}});
  AttentionTasks tasks;
  for (const bool reproducible : {false, true}) {
    for (const int threads : {16, 64}) {
      tasks.Plan(slot.Args(reproducible), threads, /*shares_by_keys=*/false);
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

int64_t CostOf(const AttentionTasks& tasks) {
  int64_t cost = 0;
  for (const auto& task : tasks.segment_tasks()) cost += task.cost;
  for (const auto& task : tasks.row_tasks()) cost += task.cost;
  return cost;
}

// The time that threads take for both phases, in equal parts of all there is to do: 1 at best.
double EqualParts(const AttentionTasks& tasks, int threads) {
  const int64_t taken =
      Makespan(tasks.segment_tasks(), threads) + Makespan(tasks.row_tasks(), threads);
  return static_cast<double>(taken) * threads / static_cast<double>(CostOf(tasks));
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
      tasks.Plan(slots.Args(false), threads, /*shares_by_keys=*/false);
      // Per KV head no less than the keys that are read.
      int64_t keys = 0;
      for (const Slots::One& one : sequences) keys += one.keys;
      EXPECT_GE(CostOf(tasks), keys * 8);
      EXPECT_LT(EqualParts(tasks, threads), threads <= 16 ? 1.05 : 1.25)
          << sequences.size() << " sequences, " << threads << " threads";
    }
  }
}

// The same where most keys are common: what is done chunk-first is divided as evenly, by keys or by
// rows, and so is what each of the sharers has for itself, of which one has far more.
TEST(AttentionTasksTest, ThreadsGetEqualPartsOfWhatIsShared) {
  constexpr int32_t kSlots = 32, kCommon = 8192, kMostOwn = 2000;
  Sharers sharers(kSlots, kCommon, kMostOwn);
  for (int32_t i = 0; i < kSlots; ++i) {
    sharers.steps()[i].key_end = kCommon + (i == 5 ? kMostOwn : 16 + 11 * i);
  }
  AttentionTasks tasks;
  for (const bool reproducible : {false, true}) {
    for (const bool shares_by_keys : {false, true}) {
      for (const int threads : {2, 3, 4, 8, 16}) {
        sharers.args.reproducible = reproducible;
        tasks.Plan(sharers.args, threads, shares_by_keys);
        int64_t met = 0;  // common keys, by each row, in phase one
        for (const auto& task : tasks.segment_tasks()) {
          const int64_t rows = task.row_end - task.row_begin;
          if (task.begin < kCommon) met += rows * (task.end - task.begin);
        }
        EXPECT_EQ(met, int64_t{kSlots} * kCommon * sharers.args.kv.num_kv_heads);
        EXPECT_LT(EqualParts(tasks, threads), 1.05)
            << threads << " threads, " << (shares_by_keys ? "by keys" : "by rows")
            << (reproducible ? ", reproducible" : "");
      }
    }
  }
}

// Each thread's half of the tasks is about rows of its own, in both phases.
TEST(AttentionTasksTest, ThreadsKeepTheirRows) {
  Sharers sharers(/*slots=*/32, /*common=*/2048, /*own=*/80);
  AttentionTasks tasks;
  tasks.Plan(sharers.args, 2, /*shares_by_keys=*/false);
  ASSERT_TRUE(tasks.segments_by_rows());
  ASSERT_TRUE(tasks.rows_by_rows());
  const auto segments = tasks.segment_tasks();
  ASSERT_GE(segments.size(), 16u);
  for (size_t i = 0; i < segments.size(); ++i) {
    const int32_t row = tasks.task_rows()[segments[i].row_begin].row;
    EXPECT_EQ(row >= 16, i >= segments.size() / 2) << i;
  }
  const auto rows = tasks.row_tasks();
  ASSERT_EQ(rows.size(), 96u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].slot >= 16, i >= 48) << i;

  // One sequence that is far longer than the others goes first.
  Slots uneven({{1, 100}, {1, 100}, {1, 3'000}, {1, 100}});
  tasks.Plan(uneven.Args(false), 2, /*shares_by_keys=*/false);
  ASSERT_FALSE(tasks.segments_by_rows() && tasks.rows_by_rows());
}

// Many rows pass by the keys of one head before those of the next, in each thread's half; few rows
// go by what of their slot lies together.
TEST(AttentionTasksTest, ManyRowsTakeHeadAfterHead) {
  Slots prompts(std::vector<Slots::One>(8, {48, 2'000}));
  AttentionTasks tasks;
  tasks.Plan(prompts.Args(false), 2, /*shares_by_keys=*/true);
  ASSERT_TRUE(tasks.rows_by_rows());
  const auto rows = tasks.row_tasks();
  const size_t half = rows.size() / 2;
  const auto by_head = [](const auto& a, const auto& b) { return a.kv_head < b.kv_head; };
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.begin() + half, by_head));
  EXPECT_TRUE(std::is_sorted(rows.begin() + half, rows.end(), by_head));
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].slot >= 4, i >= half) << i;

  // Those who decode stay as they are between them.
  std::vector<Slots::One> mixed(16, {1, 2'000});
  mixed.insert(mixed.begin(), 8, {48, 2'000});
  Slots both(mixed);
  tasks.Plan(both.Args(false), 1, /*shares_by_keys=*/true);
  ASSERT_TRUE(tasks.rows_by_rows());
  const auto all = tasks.row_tasks();
  const auto decoding =
      std::find_if(all.begin(), all.end(), [](const auto& task) { return task.slot >= 8; });
  EXPECT_FALSE(std::is_sorted(decoding, all.end(), by_head));
}

// Each key of a head is read by one task, for all rows; where keys and heads are too few for the
// threads, rows are divided as well.
TEST(AttentionTasksTest, SharedKeysAreReadOnce) {
  AttentionTasks tasks;
  const auto readers_of_key = [&](int32_t key, int32_t kv_head) {
    int64_t readers = 0;
    for (const auto& task : tasks.segment_tasks()) {
      if (task.kv_head == kv_head && task.begin <= key && key < task.end) ++readers;
    }
    return readers;
  };
  Sharers sharers(/*slots=*/32, /*common=*/2048, /*own=*/80);
  tasks.Plan(sharers.args, 2, /*shares_by_keys=*/true);
  EXPECT_EQ(readers_of_key(0, 0), 1);
  EXPECT_EQ(readers_of_key(2047, 2), 1);
  EXPECT_EQ(tasks.segment_tasks().size() % 2, 0u);  // as many for each thread
  EXPECT_EQ(tasks.num_partials() % (32 * 9), 0);
  EXPECT_LE(tasks.num_partials(), 2 * 32 * 9);

  tasks.Plan(sharers.args, 2, /*shares_by_keys=*/false);
  EXPECT_GT(readers_of_key(0, 0), 1);
  tasks.Plan(sharers.args, 16, /*shares_by_keys=*/true);
  EXPECT_GT(readers_of_key(0, 0), 1);
}

// The baseline: each sequence reads its own way, all of it.
TEST(AttentionTasksTest, PagedSharesNothing) {
  constexpr int32_t kSlots = 32, kCommon = 2048, kOwn = 80;
  Sharers sharers(kSlots, kCommon, kOwn);
  AttentionTasks tasks;
  // How often each of a KV head's keys is read, in all.
  const auto keys_read = [&](AttentionMode mode) {
    sharers.args.mode = mode;
    tasks.Plan(sharers.args, 2, /*shares_by_keys=*/true);
    int64_t keys = 0;
    for (const auto& task : tasks.segment_tasks()) {
      if (task.kv_head == 0) keys += task.end - task.begin;
    }
    for (const auto& task : tasks.row_tasks()) {
      if (task.kv_head != 0) continue;
      for (const AttentionTasks::Segment& segment : tasks.slot(task.slot).segments) {
        if (segment.partial < 0) keys += segment.end - segment.begin;
      }
    }
    return keys;
  };
  EXPECT_EQ(keys_read(AttentionMode::kPaged), kSlots * (kCommon + kOwn));
  EXPECT_EQ(keys_read(AttentionMode::kTwoPhase), kCommon + kSlots * kOwn);
}

std::vector<std::vector<int64_t>> Everything(const AttentionTasks& tasks, size_t slots) {
  std::vector<std::vector<int64_t>> all;
  for (const auto& task : tasks.segment_tasks()) {
    all.push_back({task.slot, task.kv_head, task.segment_begin, task.begin, task.end,
                   task.row_begin, task.row_end, task.partial, task.cost});
  }
  for (const auto& task : tasks.row_tasks()) {
    all.push_back({task.slot, task.kv_head, task.row_begin, task.row_end, task.cost});
  }
  for (const auto& row : tasks.task_rows()) all.push_back({row.row, row.key_limit});
  for (size_t i = 0; i < slots; ++i) {
    const AttentionTasks::Slot& slot = tasks.slot(static_cast<int32_t>(i));
    all.push_back({slot.active ? 1 : 0});
    if (!slot.active) continue;
    for (const KeyPiece& piece : slot.pieces) {
      all.push_back({reinterpret_cast<intptr_t>(piece.k), reinterpret_cast<intptr_t>(piece.v),
                     reinterpret_cast<intptr_t>(piece.positions), piece.token, piece.begin,
                     piece.count});
    }
    for (const AttentionTasks::Segment& segment : slot.segments) {
      all.push_back({segment.begin, segment.end, segment.partial, segment.partial_head_stride});
    }
  }
  all.push_back({tasks.num_partials(), tasks.segment_cost(), tasks.row_cost(),
                 tasks.segments_by_rows() ? 1 : 0, tasks.rows_by_rows() ? 1 : 0});
  return all;
}

// What is kept from one call to the next is never that of other arguments.
TEST(AttentionTasksTest, AnyOtherArgumentMakesOtherTasks) {
  Sharers sharers(/*slots=*/8, /*common=*/2048, /*own=*/60);
  ChunkAttentionArgs& args = sharers.args;
  AttentionTasks kept;
  int threads = 2;
  bool shares_by_keys = false;
  const auto expect_as_new = [&](const char* what) {
    AttentionTasks fresh;
    fresh.Plan(args, threads, shares_by_keys);
    kept.Plan(args, threads, shares_by_keys);
    EXPECT_EQ(Everything(kept, args.steps.size()), Everything(fresh, args.steps.size())) << what;
  };
  // One at a time.
  expect_as_new("at first");
  for (SlotStep& step : sharers.steps()) ++step.key_end;
  expect_as_new("a token more");
  const std::vector<std::vector<int64_t>> by_rows = Everything(kept, args.steps.size());
  shares_by_keys = true;
  expect_as_new("keys divided before rows");
  EXPECT_NE(Everything(kept, args.steps.size()), by_rows);
  sharers.steps()[3].num_rows = 0;
  expect_as_new("a slot that rests");
  args.window_tokens = 384;
  expect_as_new("a window");
  sharers.steps()[5].key_begin = 700;
  expect_as_new("which is not reached");
  sharers.chunks()[2].chunk = 40;
  expect_as_new("another chunk");
  std::vector<std::byte> other(64);
  args.kv.base = other.data();
  expect_as_new("another pool");
  args.mode = AttentionMode::kPaged;
  expect_as_new("paged");
  args.mode = AttentionMode::kTwoPhase;
  expect_as_new("in two phases");
  args.reproducible = true;
  expect_as_new("reproducible");
  args.num_heads = 3;
  expect_as_new("fewer heads");
  threads = 5;
  expect_as_new("more threads");
  sharers.steps()[7].key_end = 1'020;
  expect_as_new("a shorter slot");
  sharers.run_slots()[7].key_end = 960;
  sharers.run_slots()[15].key_begin = 960;
  expect_as_new("a slot that shares less");
  std::vector<AttentionRun> runs(args.plan.runs.begin(), args.plan.runs.end());
  std::swap(runs[1].chunk_begin, runs[2].chunk_begin);
  std::swap(runs[1].chunk_end, runs[2].chunk_end);
  args.plan.runs = runs;
  expect_as_new("two runs with each other's chunks");
}

// A window begins a key later at every step. Keys and values are used where they lie only from
// whole tiles on.
TEST(AttentionTasksTest, SegmentsBeginWithATileWhereverTheWindowBegins) {
  AttentionTasks tasks;
  Slots slots({{1, 1085}, {1, 1085}});
  for (const int32_t key_begin : {700, 701, 704}) {
    for (SlotStep& step : slots.steps()) step.key_begin = key_begin;
    for (const int threads : {1, 16}) {  // the slots are split or not
      ChunkAttentionArgs args = slots.Args(false);
      args.window_tokens = 384;
      tasks.Plan(args, threads, /*shares_by_keys=*/false);
      EXPECT_EQ(tasks.slot(1).segments.front().begin, key_begin == 704 ? 704 : 640) << key_begin;
      EXPECT_EQ(tasks.slot(1).pieces.front().begin, key_begin == 704 ? 704 : 640) << key_begin;
      for (const AttentionTasks::SegmentTask& task : tasks.segment_tasks()) {
        EXPECT_EQ(task.segment_begin % kTileKeys, 0);
        EXPECT_GE(task.begin, key_begin);
      }
    }
  }
}

// Shared keys begin in the middle of a tile, right where the window does: there is no segment of
// keys in front of it.
TEST(AttentionTasksTest, NoSegmentIsOutsideOfTheWindow) {
  AttentionTasks tasks;
  Sharers sharers(/*slots=*/4, /*common=*/600, /*own=*/30, /*lead=*/100);
  sharers.args.window_tokens = 630;
  for (SlotStep& step : sharers.steps()) step.key_begin = 100;
  for (const int threads : {1, 16}) {
    tasks.Plan(sharers.args, threads, /*shares_by_keys=*/false);
    EXPECT_EQ(tasks.slot(0).segments.front().begin, 100);
    EXPECT_GE(tasks.slot(0).segments.front().partial, 0) << "shared";
    for (const AttentionTasks::SegmentTask& task : tasks.segment_tasks()) {
      EXPECT_LT(task.begin, task.end);
    }
  }
}

// The layers of a step have the same tasks, and the first of them makes them.
TEST(AttentionTasksTest, LayersHaveTheSameTasks) {
  Sharers sharers(/*slots=*/8, /*common=*/1024, /*own=*/60);
  AttentionTasks tasks;
  EXPECT_TRUE(tasks.Plan(sharers.args, 2, /*shares_by_keys=*/false));
  const auto first = Everything(tasks, 8);
  sharers.args.layer = 17;
  EXPECT_FALSE(tasks.Plan(sharers.args, 2, /*shares_by_keys=*/false));
  EXPECT_EQ(Everything(tasks, 8), first);
  sharers.args.layer = 0;
  ++sharers.steps()[0].key_end;
  EXPECT_TRUE(tasks.Plan(sharers.args, 2, /*shares_by_keys=*/false));
}

// A step that fails for want of memory is tried again, with the same arguments.
TEST(AttentionTasksTest, APlanThatWasRefusedMemoryIsMadeAgain) {
  Sharers sharers(4, 1100, 70);
  AttentionTasks want;
  want.Plan(sharers.args, 3, false);
  int refused = 0;
  for (int news = 0;; ++news) {
    AttentionTasks tasks;
    bool failed = false;
    news_until_refusal = news;
    try {
      tasks.Plan(sharers.args, 3, false);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    news_until_refusal = -1;
    if (!failed) break;
    ++refused;
    EXPECT_TRUE(tasks.Plan(sharers.args, 3, false)) << "refused behind " << news;
    ASSERT_EQ(tasks.segment_tasks().size(), want.segment_tasks().size());
    ASSERT_EQ(tasks.row_tasks().size(), want.row_tasks().size());
    EXPECT_EQ(tasks.num_partials(), want.num_partials());
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace refrain::kernels::cpu
