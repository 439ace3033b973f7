// Under fcfs: what those that have waited for the stated delay come before, and who may pass.

#include <gtest/gtest.h>

#include <vector>

#include "engine/scheduler.h"
#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

// 1 decodes, and 3 is passing 2, with more rows than a step has. 2 came in step 0.
SchedulerSnapshot OneIsPassed(int64_t step) {
  SchedulerSnapshot s = Snapshot(200);
  s.step = step;
  s.running = {Decoding(1, 20, 2), Prefilling(3, 0, 100, 0)};
  s.waiting = {Waiting(2, 0, 20)};
  return s;
}

TEST(SchedulerPassingTest, WhoHasWaitedForTheDelayComesBeforeWhatIsLeftOfYoungerPrefills) {
  SchedulerSnapshot s = OneIsPassed(31);
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 3:31]");
  s.step = 32;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:1 3:11 2:20]");
  s.waiting[0].prefill_tokens = 60;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:1 2:31]");
  s.running[1].sequence = Id(2);
  s.waiting[0].sequence = Id(3);
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:31]") << "of an older one";
  s = OneIsPassed(5000);
  s.limits.policy = Policy::kLongestPrefix;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 3:31]");
}

// All of them before younger prefills; one that another computes a chunk for is left out.
TEST(SchedulerPassingTest, OfThoseThatHaveWaitedTheOldestComesFirst) {
  SchedulerSnapshot s = OneIsPassed(32);
  s.limits.max_sequences = 8;
  s.running[1].sequence = Id(9);
  s.waiting = {Waiting(2, 0, 10), Waiting(3, 0, 10), Waiting(4, 0, 10), Waiting(5, 0, 10)};
  s.waiting[1].held = true;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2 4 5] work [1:1 9:1 2:10 4:10 5:10]");
  for (WaitingEntry& entry : s.waiting) entry.next_chunk_key = 7;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:1 9:21 2:10]");
  s.waiting[3].since_step = 1;
  s.waiting[3].next_chunk_key = 0;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:1 9:21 2:10]");
}

// It lacks a slot or chunks: rows are not left for it.
TEST(SchedulerPassingTest, WhoCannotStartHoldsUpNoPrefill) {
  SchedulerSnapshot s = OneIsPassed(32);
  s.waiting.push_back(Waiting(4, 0, 1));
  s.limits.max_sequences = 2;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 3:31]");
  s.limits.max_sequences = 4;
  s.free_chunks = 8;  // seven are for 3, one is the margin
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 3:31]");
  s.running[1].runnable_tokens = 20;
  s.free_chunks = 4;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 3:20]") << "nobody passes it";
}

TEST(SchedulerPassingTest, APrefillIsAsOldAsWhoWaitsForIt) {
  SchedulerSnapshot s = OneIsPassed(32);
  s.running.insert(s.running.begin() + 1, Prefilling(2, 0, 10, 0));
  s.waiting[0] = Waiting(3, 0, 60);
  s.running[2] = Prefilling(4, 0, 100, 0);
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3] work [1:1 2:10 3:21]");
  s.running[2].older = Id(1);
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 4:31]");
}

// The rows are those of its tenant's turn.
// Nothing is free, and two half-done ones are left: the one that came first goes on, with what the
// other had. It would be the other's turn, but that is the one to give way.
TEST(SchedulerPassingTest, WhoGivesWayIsNotTheOneThatGoesOn) {
  SchedulerSnapshot s = Snapshot(0);
  s.running = {Prefilling(5, 32, 100, 2), Prefilling(9, 32, 100, 2)};
  s.running[1].older = Id(3);
  EXPECT_EQ(Plan(s).ToString(), "preempt [9] admit [] work [5:1]");
}

TEST(SchedulerPassingTest, WithinATenantsTurnTheSameHolds) {
  SchedulerSnapshot s = OneIsPassed(31);
  s.tenants = {{.served = 8'000'000}, {}};
  s.waiting.push_back(Waiting(4, 1, 12));
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [4] work [1:1 3:19 4:12]");
  s.step = 32;
  s.waiting[1].since_step = 32;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [4 2] work [1:1 4:12 2:19]");
  // What it lacks, its tenant lacks; its prefill goes on.
  s.waiting[0].prefill_tokens = 5000;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [4] work [1:1 3:19 4:12]");
}

// 28 decode, and two wait: half of a step's 60 rows are for 30 answers. A prompt of 480 rows takes
// 480 / 30 steps beside them and 480 / 60 alone: a fourth of the delay of 32 steps more.
TEST(SchedulerPassingTest, NobodyPassesWhoseAnswersWouldTakeTheRowsOfThosePassed) {
  SchedulerSnapshot s = Snapshot(10'000);
  s.limits = {.max_sequences = 60, .step_token_budget = 60, .chunk_tokens = 16};
  uint64_t id = 1;
  for (; id <= 28; ++id) s.running.push_back(Decoding(id, 20, 2));
  s.waiting = {Waiting(id, 0, 480), Waiting(id + 1, 0, 2)};
  s.waiting[1].shares_running = true;
  EXPECT_EQ(Plan(s).admit.front(), Id(id + 1));
  ++s.waiting[0].prefill_tokens;
  EXPECT_EQ(Plan(s).admit.front(), Id(id));
  s.waiting[0].prefill_tokens = 2;
  s.limits.step_token_budget = 30;
  EXPECT_EQ(Plan(s).admit, std::vector{Id(id)}) << "no rows would be left";
}

}  // namespace
}  // namespace refrain::engine
