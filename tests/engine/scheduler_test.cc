#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <vector>

#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

TEST(SchedulerTest, PrintsAndCompares) {
  const StepPlan plan{.preempt = {Id(9)}, .admit = {Id(3)}, .work = {{Id(1), 1}, {Id(3), 31}}};
  EXPECT_EQ(plan.ToString(), "preempt [9] admit [3] work [1:1 3:31]");
  EXPECT_EQ(plan, StepPlan(plan));
  EXPECT_NE(plan, StepPlan{});
}

TEST(SchedulerTest, NothingToDoIsAnEmptyPlan) { EXPECT_TRUE(Plan(Snapshot(10)).empty()); }

// Two decode, one prefills 100 more tokens: it gets what the rows of the two leave.
TEST(SchedulerTest, DecodesFirstThenCutsPrefillToTheBudget) {
  SchedulerSnapshot s = Snapshot(10);
  s.running = {Prefilling(1, 0, 100, 0), Decoding(2, 20, 2), Decoding(3, 20, 2)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:30 2:1 3:1]");
}

TEST(SchedulerTest, AdmitsInOrderOfArrivalWhileTheBudgetLasts) {
  SchedulerSnapshot s = Snapshot(20);
  s.running = {Decoding(1, 20, 2)};
  s.waiting = {{.sequence = Id(2), .prefill_tokens = 20},
               {.sequence = Id(3), .prefill_tokens = 20},
               {.sequence = Id(4), .prefill_tokens = 5}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2 3] work [1:1 2:20 3:11]");
}

TEST(SchedulerTest, AdmitsNoMoreThanMaxSequences) {
  SchedulerSnapshot s = Snapshot(100);
  for (uint64_t id = 1; id <= 6; ++id) {
    s.waiting.push_back({.sequence = Id(id), .prefill_tokens = 2});
  }
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1 2 3 4] work [1:2 2:2 3:2 4:2]");
}

// The first needs 3 chunks, 2 are free: the small one behind it does not overtake.
TEST(SchedulerTest, AdmissionWaitsForChunksOfTheWholePrompt) {
  SchedulerSnapshot s = Snapshot(2);
  s.running = {Decoding(1, 20, 2)};
  s.waiting = {{.sequence = Id(2), .prefill_tokens = 32}, {.sequence = Id(3), .prefill_tokens = 1}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1]");
}

// Four of the shared tokens are in a chunk that will be copied: 28 more fit into the two free ones.
TEST(SchedulerTest, AdmissionStartsWithWhatFitsBehindAPartOfAChunk) {
  SchedulerSnapshot s = Snapshot(2);
  s.waiting = {{.sequence = Id(1), .prefill_tokens = 100, .shared_tokens = 20}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1] work [1:28]");
}

// Of three free chunks the running prefill takes one, its first decode row will need another, and
// one is the margin: none is left for a newcomer.
TEST(SchedulerTest, AdmissionLeavesRunningPrefillsTheirChunks) {
  SchedulerSnapshot s = Snapshot(3);
  s.running = {Prefilling(1, 16, 16, 1)};
  s.waiting = {{.sequence = Id(2), .prefill_tokens = 1}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:16]");
  s.free_chunks = 4;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:16 2:1]");
}

// Nor are the chunks for what it computes behind its replay given away.
TEST(SchedulerTest, AdmissionLeavesAReplayItsChunks) {
  SchedulerSnapshot s = Snapshot(4);
  s.running = {Prefilling(1, 0, 16, 1)};
  s.running[0].later_tokens = 40;
  s.running[0].replays = true;
  s.waiting = {{.sequence = Id(2), .prefill_tokens = 1}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:16]");
  s.free_chunks = 5;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:16 2:1]");
}

// What a sequence shares needs neither chunks nor rows.
TEST(SchedulerTest, SharedTokensCostNothing) {
  SchedulerSnapshot s = Snapshot(1);
  s.waiting = {{.sequence = Id(2), .prefill_tokens = 40, .shared_tokens = 39}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [2:1]");
}

// Both need a chunk, none is free: the youngest gives up, the oldest goes on.
TEST(SchedulerTest, PreemptsTheYoungestWhenThePoolIsFull) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Decoding(1, 32, 2), Decoding(2, 32, 2)};
  s.waiting = {{.sequence = Id(3), .prefill_tokens = 1}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]");
}

// Two beams that were forked just now have no chunk of their own; together they give up five.
TEST(SchedulerTest, TheOldestKeepsItsChunksWhenYoungerOnesShareTheirs) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Decoding(1, 64, 4), Decoding(2, 70, 5), Decoding(3, 70, 4)};
  for (size_t i : {1, 2}) {
    s.running[i].exclusive_chunks = 0;
    s.running[i].shared_run = 0;
  }
  s.shared_runs = {{.chunks = 5, .holders = 2}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [3 2] admit [] work [1:1]");
}

// Only the youngest needs a chunk: it is the one that gives up.
TEST(SchedulerTest, TheYoungestPreemptsItselfRatherThanAnOlderOne) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Decoding(1, 20, 2), Decoding(2, 32, 2)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]");
}

// It holds a part of a chunk, of which the copy has no room: only where it runs alone may the chunk
// itself be cut.
TEST(SchedulerTest, NobodyCutsAChunkBesideOthers) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Decoding(1, 20, 2), Decoding(2, 20, 1)};
  s.running[1].reserved_tokens = 20;
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]");
  s.running.erase(s.running.begin());
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [2:1]");
}

// Two half-done prefills hold all chunks between them.
TEST(SchedulerTest, StuckPrefillsMakeTheYoungerGiveUp) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Prefilling(1, 16, 40, 1), Prefilling(2, 32, 40, 2)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]");
}

// Scenario: everything is in flight; nothing may be preempted for that.
TEST(SchedulerTest, WaitsForStepsInFlight) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Decoding(1, 20, 2)};
  s.running[0].runnable_tokens = 0;
  EXPECT_TRUE(Plan(s).empty());
}

TEST(SchedulerTest, PriorityDecidesAdmissionAndPreemption) {
  SchedulerSnapshot s = Snapshot(20);
  s.limits.policy = Policy::kPriority;
  s.limits.max_sequences = 2;
  s.waiting = {{.sequence = Id(1), .prefill_tokens = 2, .priority = 5},
               {.sequence = Id(2), .prefill_tokens = 2, .priority = 1},
               {.sequence = Id(3), .prefill_tokens = 2, .priority = 1}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2 3] work [2:2 3:2]");

  s = Snapshot(0);
  s.limits.policy = Policy::kPriority;
  s.running = {Decoding(1, 32, 2), Decoding(2, 32, 2)};
  s.running[0].priority = 7;
  EXPECT_EQ(Plan(s).ToString(), "preempt [1] admit [] work [2:1]");
}

// Nothing that a client may say is taken for something else.
TEST(SchedulerTest, PrioritiesAtTheEndsOfTheirRangeAreInOrder) {
  SchedulerSnapshot s = Snapshot(20);
  s.limits.policy = Policy::kPriority;
  s.waiting = {{.sequence = Id(1), .prefill_tokens = 2, .priority = INT64_MAX},
               {.sequence = Id(2), .prefill_tokens = 2, .priority = INT32_MAX + int64_t{1}},
               {.sequence = Id(3), .prefill_tokens = 2, .priority = 0},
               {.sequence = Id(4), .prefill_tokens = 2, .priority = INT64_MIN}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [4 3 2 1] work [4:2 3:2 2:2 1:2]");

  // Who has aged comes before the most urgent that has not.
  s.limits.max_sequences = 1;
  s.step = s.limits.ageing_steps;
  for (size_t i = 1; i < 4; ++i) s.waiting[i].since_step = s.step;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1] work [1:2]");

  s = Snapshot(0);
  s.limits.policy = Policy::kPriority;
  s.running = {Decoding(1, 32, 2), Decoding(2, 32, 2), Decoding(3, 32, 2)};
  s.running[0].priority = INT64_MAX;
  s.running[1].priority = INT32_MAX;
  s.running[2].priority = INT64_MIN;
  EXPECT_EQ(Plan(s).ToString(), "preempt [1] admit [] work [2:1 3:1]");
}

TEST(SchedulerTest, LongestPrefixAdmitsWhatIsMostCached) {
  SchedulerSnapshot s = Snapshot(20);
  s.limits.policy = Policy::kLongestPrefix;
  s.limits.max_sequences = 1;
  s.waiting = {{.sequence = Id(1), .prefill_tokens = 60},
               {.sequence = Id(2), .prefill_tokens = 60, .shared_tokens = 48},
               {.sequence = Id(3), .prefill_tokens = 60, .shared_tokens = 16}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [2:12]");
}

TEST(SchedulerTest, OnlyOneOfThoseThatLackTheSameChunkIsAdmitted) {
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    SchedulerSnapshot s = Snapshot(40);
    s.limits.policy = policy;
    s.waiting = {{.sequence = Id(1), .prefill_tokens = 20, .next_chunk_key = 7},
                 {.sequence = Id(2), .prefill_tokens = 18, .next_chunk_key = 7},
                 {.sequence = Id(3), .prefill_tokens = 5, .next_chunk_key = 8},
                 {.sequence = Id(4), .prefill_tokens = 3}};
    EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1 3 4] work [1:20 3:5 4:3]");
  }
}

TEST(SchedulerTest, HeldSequencesArePassedOver) {
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    SchedulerSnapshot s = Snapshot(40);
    s.limits.policy = policy;
    s.running = {Decoding(1, 10, 1)};
    s.waiting = {{.sequence = Id(2), .prefill_tokens = 20, .held = true},
                 {.sequence = Id(3), .prefill_tokens = 2}};
    EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3] work [1:1 3:2]");
    s.step = 100000;
    EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3] work [1:1 3:2]");
  }
}

// Chunks that only the cache holds stop being free when a sequence that shares them starts.
TEST(SchedulerTest, IdleSharedChunksAreCounted) {
  SchedulerSnapshot s = Snapshot(4);
  s.running = {Decoding(1, 10, 1)};
  s.waiting = {{.sequence = Id(2), .prefill_tokens = 40, .shared_tokens = 32, .idle_chunks = 2}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:1 2:8]");
  s.free_chunks = 3;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1]");
}

TEST(SchedulerTest, ReplayedTokensAreRowsWithoutChunks) {
  SchedulerSnapshot s = Snapshot(1);
  s.waiting = {
      {.sequence = Id(2), .prefill_tokens = 40, .shared_tokens = 39, .replayed_tokens = 20}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [2:21]");
}

TEST(SchedulerTest, ThoseThatShareOvertakeForAStatedDelayOnly) {
  SchedulerSnapshot s = Snapshot(40);
  s.limits.max_sequences = 2;
  s.limits.grouping_delay_steps = 10;
  s.step = 109;
  s.waiting = {{.sequence = Id(1), .prefill_tokens = 4, .since_step = 100},
               {.sequence = Id(2), .prefill_tokens = 4, .shares_running = true, .since_step = 105}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2 1] work [2:4 1:4]");
  s.step = 110;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1 2] work [1:4 2:4]");
}

// Else who is passed would wait until an answer ends, which may take far longer.
TEST(SchedulerTest, ThoseThatSharePassNobodyWhoseSlotOrChunksTheyWouldTake) {
  SchedulerSnapshot s = Snapshot(40);
  s.waiting = {{.sequence = Id(1), .prefill_tokens = 4},
               {.sequence = Id(2), .prefill_tokens = 4, .shares_running = true},
               {.sequence = Id(3), .prefill_tokens = 4},
               {.sequence = Id(4), .prefill_tokens = 4, .shares_running = true}};
  s.limits.max_sequences = 4;
  EXPECT_EQ(Plan(s).admit, (std::vector{Id(2), Id(4), Id(1), Id(3)}));
  s.limits.max_sequences = 3;
  EXPECT_EQ(Plan(s).admit, (std::vector{Id(2), Id(1), Id(3)}));
  s.limits.max_sequences = 1;
  EXPECT_EQ(Plan(s).admit, std::vector{Id(1)});
  s.limits.max_sequences = 4;
  s.waiting[0].prefill_tokens = 38 * s.limits.chunk_tokens;
  EXPECT_EQ(Plan(s).admit.front(), Id(1));
}

// 100 chunks are free as the plan begins, and 60 for those that wait: the prefill of 1 takes 40. 3
// needs 57 of them and a margin, 4, which shares with 2, needs 5.
TEST(SchedulerTest, ThoseThatSharePassNobodyForWhatRunningPrefillsLeave) {
  SchedulerSnapshot s = Snapshot(100);
  s.limits = {.max_sequences = 8, .step_token_budget = 4096, .chunk_tokens = 64};
  s.running = {Prefilling(1, 0, 2560, 0), Decoding(2, 1030, 68)};
  s.running[1].reserved_tokens = 17 * 64;
  s.waiting = {
      {.sequence = Id(3), .prefill_tokens = 3584},
      {.sequence = Id(4), .prefill_tokens = 1280, .shared_tokens = 1024, .shares_running = true}};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3] work [1:2560 2:1 3:1535]");
  // With what all four may grow by until 3 would come first in any case.
  s.free_chunks += 4 + 4 + 1;
  EXPECT_EQ(Plan(s).admit, (std::vector{Id(4), Id(3)}));
  --s.free_chunks;
  EXPECT_EQ(Plan(s).admit.front(), Id(3));
}

// With rows for everyone in one step, and whatever runs: who would be admitted if nobody could pass
// is so where some do.
TEST(SchedulerTest, PassingKeepsNobodyOut) {
  std::mt19937 random(7);
  const auto below = [&random](uint32_t n) { return static_cast<int32_t>(random() % n); };
  int passing = 0;
  for (int round = 0; round < 5000; ++round) {
    SchedulerSnapshot s = Snapshot(below(120));
    s.limits.max_sequences = 3 + below(8);
    s.limits.step_token_budget = 1 << 20;
    s.limits.grouping_delay_steps = 16 * below(3);
    s.step = 10;
    s.tenants.resize(static_cast<size_t>(below(4)));
    const auto tenant = [&] {
      return s.tenants.empty() ? 0 : below(static_cast<uint32_t>(s.tenants.size()));
    };
    for (TenantEntry& entry : s.tenants) entry.served = below(400) * 1000;
    uint64_t id = 1;
    for (int32_t i = below(3); i >= 0; --i, ++id) {
      const int32_t tokens = 1 + below(100);
      s.running.push_back(below(2) == 0 ? Decoding(id, tokens, tokens / 16 + 1)
                                        : Prefilling(id, 0, tokens, 0));
      s.running.back().tenant = tenant();
    }
    for (int32_t i = below(6); i >= 0; --i, ++id) {
      WaitingEntry entry = Waiting(id, tenant(), 1 + below(400));
      entry.shared_tokens = below(static_cast<uint32_t>(entry.prefill_tokens));
      entry.idle_chunks = below(2);
      entry.shares_running = below(2) == 0;
      entry.since_step = s.step;
      s.waiting.push_back(entry);
    }
    std::vector<SequenceId> admitted = Plan(s).admit;
    for (WaitingEntry& entry : s.waiting) entry.shares_running = false;
    for (const SequenceId one : Plan(s).admit) {
      ASSERT_EQ(std::count(admitted.begin(), admitted.end(), one), 1) << "round " << round;
    }
    passing += std::is_sorted(admitted.begin(), admitted.end()) || !s.tenants.empty() ? 0 : 1;
  }
  EXPECT_GT(passing, 200);
}

// Of many that lack the same chunk one is named: nine thousand others behind it are no reason to
// look at all again.
TEST(SchedulerTest, ThoseThatLackAChunkLeaveRoomForOthers) {
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    SchedulerSnapshot s = Snapshot(4000);
    s.limits.policy = policy;
    s.limits.max_sequences = 8;
    s.limits.step_token_budget = 1024;
    for (uint64_t id = 1; id <= 2000; ++id) {
      WaitingEntry entry = Waiting(id, 0, 20);
      entry.next_chunk_key = id <= 900 ? 5 : id <= 1800 ? 6 : 0;
      entry.priority = id == 700 ? -1 : 0;
      s.waiting.push_back(entry);
    }
    const uint64_t first = policy == Policy::kPriority ? 700 : 1;
    EXPECT_EQ(Plan(s).admit, (std::vector{Id(first), Id(901), Id(1801), Id(1802), Id(1803),
                                          Id(1804), Id(1805), Id(1806)}));
  }
}

TEST(SchedulerTest, PrefillsRunInOrderOfPriority) {
  SchedulerSnapshot s = Snapshot(40);
  s.limits.policy = Policy::kPriority;
  s.running = {Prefilling(1, 0, 100, 0), Prefilling(2, 0, 20, 0)};
  s.running[0].priority = 1;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:12 2:20]");
}

// One slot; every step a better one arrives and the running one ends. The bound: `ageing_steps`,
// plus a step for each sequence that was there before (here none).
TEST(SchedulerTest, NobodyWaitsForEver) {
  for (const Policy policy : {Policy::kLongestPrefix, Policy::kPriority}) {
    SchedulerSnapshot s = Snapshot(40);
    s.limits.policy = policy;
    s.limits.max_sequences = 1;
    s.limits.ageing_steps = 50;
    uint64_t id = 1;
    s.waiting = {{.sequence = Id(id++), .prefill_tokens = 8, .priority = 9}};
    int64_t admitted_at = -1;
    for (; s.step < 1000 && admitted_at < 0; ++s.step) {
      for (int i = 0; i < 2; ++i) {
        s.waiting.push_back({.sequence = Id(id++),
                             .prefill_tokens = 8,
                             .shared_tokens = 7,
                             .priority = 0,
                             .since_step = s.step});
      }
      const StepPlan plan = Plan(s);
      ASSERT_EQ(plan.admit.size(), 1u);
      if (plan.admit[0] == Id(1)) admitted_at = s.step;
      std::erase_if(s.waiting, [&](const auto& entry) { return entry.sequence == plan.admit[0]; });
    }
    EXPECT_EQ(admitted_at, 50);
  }
}

TEST(SchedulerTest, TheLeastUrgentGivesWayFirst) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Decoding(1, 16, 1), Decoding(2, 16, 1), Decoding(3, 16, 1)};
  s.running[0].priority = 5;
  s.running[1].priority = 5;
  EXPECT_EQ(FirstToGiveWay(s), Id(3));
  s.limits.policy = Policy::kPriority;
  EXPECT_EQ(FirstToGiveWay(s), Id(2));
  // Between tenants who has more than its part of the cache does.
  s.tenants.resize(2);
  s.running[0].tenant = s.running[2].tenant = 1;
  s.running[0].exclusive_chunks = 6;
  EXPECT_EQ(FirstToGiveWay(s), Id(1));
}

// Rows whose K and V are there need no room in the last chunk, of which they hold a part only.
TEST(SchedulerTest, ReplayedRowsRunInAFullPool) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Prefilling(1, 34, 9, 2)};
  s.running[0].reserved_tokens = 44;
  s.running[0].later_tokens = 1;
  EXPECT_EQ(Plan(s).work, (std::vector<StepWork>{{Id(1), 1}}));  // cuts its chunk
  s.running[0].replays = true;
  const StepPlan plan = Plan(s);
  EXPECT_EQ(plan.work, (std::vector<StepWork>{{Id(1), 9}}));
  EXPECT_TRUE(plan.preempt.empty());
  // What is free is another's.
  s.free_chunks = 1;
  s.running[0].runnable_tokens = 10;
  s.running.push_back(Prefilling(2, 16, 10, 1));
  EXPECT_EQ(Plan(s).work, (std::vector<StepWork>{{Id(1), 10}, {Id(2), 10}}));
}

// On random snapshots: no more rows than the budget, no more chunks than there are, nobody twice,
// and always something to do while something can run.
TEST(SchedulerTest, RandomPlansKeepTheLimits) {
  std::mt19937 random(99);
  const auto below = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  int preempting = 0, admitting = 0, cutting = 0;
  for (int round = 0; round < 20000; ++round) {
    SchedulerSnapshot s = Snapshot(below(2) * below(8));
    s.limits.policy = static_cast<Policy>(below(3));
    s.step = below(2000);
    for (int n = below(4); n > 0; --n) {
      s.tenants.push_back({.served = below(200'000), .weight_milli = 500 + below(2000)});
    }
    const auto any_tenant = [&] {
      return s.tenants.empty() ? 0 : below(static_cast<int32_t>(s.tenants.size()));
    };
    uint64_t id = 1;
    for (int n = below(5); n > 0; --n) {
      const int32_t tokens = below(2) == 0 ? 1 + below(60) : 16 * (1 + below(4));
      const int32_t chunks = (tokens + 15) / 16;
      s.running.push_back(below(2) == 0 ? Decoding(id++, tokens, chunks)
                                        : Prefilling(id++, tokens, 1 + below(40), chunks));
      RunningEntry& entry = s.running.back();
      entry.priority = below(3);
      entry.tenant = any_tenant();
      if (entry.decoding) continue;
      entry.later_tokens = below(2) * below(30);
      entry.replays = entry.later_tokens > 0 && below(2) == 0;
      if (below(3) == 0) entry.reserved_tokens = tokens;  // a part of a chunk that is not its own
      if (!s.tenants.empty() && below(3) == 0) entry.lender = any_tenant();
    }
    if (s.running.size() >= 2 && below(2) == 0) {
      RunningEntry& a = s.running[0];
      RunningEntry& b = s.running.back();
      const int32_t chunks = 1 + below(std::min(a.exclusive_chunks, b.exclusive_chunks));
      a.shared_run = b.shared_run = 0;
      a.exclusive_chunks -= chunks;
      b.exclusive_chunks -= chunks;
      s.shared_runs = {{.chunks = chunks, .holders = 2}};
    }
    if (below(2) == 0) {  // all have passed those that wait
      for (size_t i = 0; i < s.running.size(); ++i) s.running[i].sequence = Id(101 + i);
    }
    for (int n = below(4); n > 0; --n) {
      s.waiting.push_back(Waiting(id++, any_tenant(), 1 + below(100)));
      WaitingEntry& entry = s.waiting.back();
      entry.priority = below(3);
      entry.since_step = s.waiting.size() < 2
                             ? below(static_cast<int32_t>(s.step) + 1)
                             : std::min(s.step, s.waiting.rbegin()[1].since_step + below(500));
      entry.next_chunk_key = static_cast<uint64_t>(below(4));
      entry.held = entry.next_chunk_key != 0 && below(4) == 0;
      entry.shares_running = below(3) == 0;
      if (below(2) == 0) continue;
      entry.shared_tokens = below(entry.prefill_tokens);
      // Of the free chunks, of which one more is left to go on with.
      entry.idle_chunks =
          below(std::clamp((entry.shared_tokens + 15) / 16 + 1, 1, std::max(1, s.free_chunks)));
      entry.replayed_tokens = below(2) * below(entry.shared_tokens + 1);
    }
    for (const WaitingEntry& entry : s.waiting) {
      if (!entry.held || s.running.empty() || s.limits.policy != Policy::kFcfs) continue;
      RunningEntry& producer =
          s.running[static_cast<size_t>(below(static_cast<int32_t>(s.running.size())))];
      if (entry.tenant != producer.turn_of() || entry.sequence > producer.age()) continue;
      producer.older = entry.sequence;
    }
    const StepPlan plan = Plan(s);
    if (!plan.preempt.empty()) {
      ASSERT_TRUE(plan.admit.empty());
    }
    int32_t rows = 0;
    int32_t free = s.free_chunks;
    bool may_cut = false;
    std::set<uint64_t> computed;
    std::vector<SequenceId> seen = plan.preempt;
    for (const SequenceId victim : plan.preempt) {
      const RunningEntry& entry = *FindEntry(s.running, victim);
      free += entry.exclusive_chunks;
      if (entry.shared_run == 0 && --s.shared_runs[0].holders == 0) free += s.shared_runs[0].chunks;
    }
    for (const StepWork& work : plan.work) {
      seen.push_back(work.sequence);
      rows += work.num_tokens;
      ASSERT_GT(work.num_tokens, 0);
      const auto running = FindEntry(s.running, work.sequence);
      if (running != s.running.end() && running->sequence == work.sequence) {
        const RunningEntry& entry = *running;
        ASSERT_LE(work.num_tokens, entry.runnable_tokens);
        const int32_t end_chunk = (entry.next_token + work.num_tokens + 15) / 16;
        if (!entry.replays) free -= std::max(0, end_chunk - entry.reserved_tokens / 16);
        may_cut |= entry.reserved_tokens % 16 != 0;
      } else {
        const WaitingEntry& entry = *FindEntry(s.waiting, work.sequence);
        ASSERT_FALSE(entry.held);
        if (entry.next_chunk_key != 0) {
          ASSERT_TRUE(computed.insert(entry.next_chunk_key).second) << plan.ToString();
        }
        const int32_t rest = entry.prefill_tokens - entry.shared_tokens;
        ASSERT_LE(work.num_tokens, rest + entry.replayed_tokens);
        const int32_t added = std::max(0, work.num_tokens - entry.replayed_tokens);
        free -= entry.idle_chunks;
        if (added > 0) free -= (entry.shared_tokens + added + 15) / 16 - entry.shared_tokens / 16;
        may_cut |= entry.shared_tokens % 16 != 0;
      }
    }
    ASSERT_LE(rows, s.limits.step_token_budget);
    // Who is alone writes behind a part of a chunk in the chunk itself where no copy fits.
    const bool cuts = may_cut && plan.work.size() == 1;
    ASSERT_GE(free, cuts ? -1 : 0) << plan.ToString();
    cutting += free < 0 ? 1 : 0;
    admitting += plan.admit.empty() ? 0 : 1;
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << plan.ToString();
    ASSERT_LE(s.running.size() + plan.admit.size(), 4u);
    if (!s.running.empty()) {
      ASSERT_FALSE(plan.empty());
      // Under other policies a stuck one may give up for another that is stuck as well; among
      // tenants, the only one with work for a tenant that runs nothing.
      if (s.limits.policy == Policy::kFcfs && s.tenants.size() < 2) {
        ASSERT_TRUE(!plan.work.empty() || plan.preempt.size() == s.running.size());
      }
    }
    const bool waits = std::any_of(s.waiting.begin(), s.waiting.end(),
                                   [](const WaitingEntry& entry) { return !entry.held; });
    if (s.running.empty() && waits && s.free_chunks > 0) {
      ASSERT_FALSE(plan.admit.empty());
    }
    preempting += plan.preempt.empty() ? 0 : 1;
  }
  EXPECT_GT(preempting, 1000);
  EXPECT_GT(admitting, 1000);
  EXPECT_GT(cutting, 10);
}

}  // namespace
}  // namespace refrain::engine
