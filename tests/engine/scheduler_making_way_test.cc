// Several tenants (API keys), and not enough for all: who passes whom, and in which plans others
// make way.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

// Tenant 0 runs an answer in 45 of 100 chunks, and its next request takes 61. Tenant 1 was served
// more and runs nothing: its small one does not wait until the answer ends.
TEST(SchedulerMakingWayTest, WhoRunsNothingPassesTheRequestThatDoesNotFit) {
  SchedulerSnapshot s = Snapshot(55);
  s.tenants = {{.served = 0}, {.served = 1'000'000}};
  s.running = {DecodingOf(0, 1, 715, 45)};
  s.waiting = {Waiting(2, 0, 960), Waiting(3, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3] work [1:1 3:20]");
  // One at a time: the second comes in its turn.
  s.waiting = {Waiting(2, 0, 960), Waiting(3, 1, 4), Waiting(4, 1, 4)};
  EXPECT_EQ(Plan(s).admit, std::vector<SequenceId>{Id(3)});
  s.running.push_back(DecodingOf(1, 5, 20, 2));
  EXPECT_EQ(Plan(s).admit, std::vector<SequenceId>{});
}

// What this plan starts of a tenant runs, too.
TEST(SchedulerMakingWayTest, WhoRunsNothingPassesATenantThatThisPlanStarts) {
  SchedulerSnapshot s = Snapshot(55);
  s.tenants = {{.served = 0}, {.served = 1'000'000'000}};
  s.waiting = {Waiting(1, 0, 10), Waiting(2, 0, 960), Waiting(3, 1, 4)};
  EXPECT_EQ(Plan(s).admit, (std::vector<SequenceId>{Id(1), Id(3)}));
}

// Tenant 0's answer has ended: it runs nothing either, and nobody passes it any more.
TEST(SchedulerMakingWayTest, NobodyPassesATenantThatRunsNothing) {
  SchedulerSnapshot s = Snapshot(55);
  s.tenants = {{.served = 0}, {.served = 1'000'000}, {.served = 2'000'000}};
  s.running = {DecodingOf(2, 1, 715, 45)};
  s.waiting = {Waiting(2, 0, 960), Waiting(3, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1]");
  // Nor does tenant 2 pass tenant 1, which does not fit beside tenant 0's answer either.
  s.running = {DecodingOf(0, 1, 715, 45)};
  s.waiting = {Waiting(2, 0, 960), Waiting(3, 1, 900), Waiting(4, 2, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1]");
}

// Tenant 0's answer goes on for 200 tokens. Meanwhile requests of two other tenants, each of which
// always has more, pass its large one, one of each at a time. Once it has ended that waits for
// those that run then, at most: 20 steps for the prompts of both and 100 for their answers.
TEST(SchedulerMakingWayTest, WhatIsPassedIsNotPutOffForEver) {
  SchedulerSnapshot s = Snapshot(65);  // of 110
  s.tenants = {{.served = 0}, {.served = 1'000'000}, {.served = 1'000'000}};
  s.running = {DecodingOf(0, 1, 700, 45)};
  s.waiting = {Waiting(2, 0, 1500)};
  uint64_t next_id = 3;
  int passed = 0;
  std::optional<int64_t> ended_at, admitted_at;
  for (; s.step < 2000 && !admitted_at.has_value(); ++s.step) {
    for (const int32_t tenant : {1, 2}) s.waiting.push_back(Waiting(next_id++, tenant, 300));
    const StepPlan plan = Plan(s);
    ASSERT_EQ(plan.preempt, std::vector<SequenceId>{});
    for (const SequenceId id : plan.admit) {
      const auto found = FindEntry(s.waiting, id);
      if (found->tenant == 0) {
        admitted_at = s.step;
      } else {
        ++passed;
      }
      const RunningEntry entry = {
          .sequence = id, .runnable_tokens = found->prefill_tokens, .tenant = found->tenant};
      s.running.insert(FindEntry(s.running, id), entry);
      s.waiting.erase(found);
    }
    for (const StepWork& work : plan.work) {
      RunningEntry& entry = *FindEntry(s.running, work.sequence);
      entry.next_token += work.num_tokens;
      const int32_t chunks = (entry.next_token + 15) / 16;
      s.free_chunks -= chunks - entry.reserved_tokens / 16;
      ASSERT_GE(s.free_chunks, 0);
      entry.reserved_tokens = chunks * 16;
      entry.exclusive_chunks = chunks;
      entry.runnable_tokens = std::max(1, entry.runnable_tokens - work.num_tokens);
      entry.decoding = entry.runnable_tokens == 1;
    }
    std::erase_if(s.running, [&](const RunningEntry& entry) {
      const bool ends = entry.next_token == (entry.tenant == 0 ? 900 : 400);
      if (ends) s.free_chunks += entry.exclusive_chunks;
      if (ends && entry.tenant == 0) ended_at = s.step;
      return ends;
    });
  }
  EXPECT_GE(passed, 4);
  ASSERT_TRUE(ended_at.has_value() && admitted_at.has_value());
  EXPECT_LE(*admitted_at - *ended_at, 20 + 100 + 1);
}

// Twelve answers of tenant 0 share ten chunks and have one each, of 22. Two of them need another,
// for which two give way. Tenant 1's request takes two chunks: four more make way for it in the
// same plan, for the six that stay want a margin of two.
TEST(SchedulerMakingWayTest, APlanThatTakesChunksForGrowthMakesWayForAnotherTenantToo) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = 64;
  s.limits.step_token_budget = 64;
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 12; ++id) {
    s.running.push_back(DecodingOf(0, id, id <= 2 ? 176 : 170, 11));
    Share(&s.running.back(), 10, 0);
  }
  s.shared_runs = {{.chunks = 10, .holders = 12}};
  s.waiting = {Waiting(20, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [12 11 10 9 8 7] admit [] work [1:1 2:1 3:1 4:1 5:1 6:1]");
  // Nobody makes way where tenant 0 comes first.
  s.tenants = {{}, {.served = 5'000'000}};
  s.waiting = {Waiting(19, 0, 20), Waiting(20, 1, 20)};
  EXPECT_EQ(Plan(s).preempt, (std::vector<SequenceId>{Id(12), Id(11)}));
}

// As above, and a prefill of tenant 1 that runs lacks the chunks.
TEST(SchedulerMakingWayTest, APlanThatTakesChunksForGrowthMakesWayForAPrefillToo) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = 64;
  s.limits.step_token_budget = 64;
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 12; ++id) {
    s.running.push_back(DecodingOf(0, id, id <= 2 ? 63 : 50, 4));
  }
  s.running[0].next_token = s.running[1].next_token = 64;
  s.running.push_back(Prefilling(13, 16, 100, 1));
  s.running.back().tenant = 1;
  // The first to give way leaves two chunks for the prefill and one each for 1 and 2; that lacks
  // five more, and a margin.
  const StepPlan plan = Plan(s);
  EXPECT_EQ(plan.preempt, (std::vector<SequenceId>{Id(12), Id(11), Id(10)}));
  EXPECT_EQ(plan.work.back(), (StepWork{Id(13), 32}));
}

// Tenant 1's prompt lacks chunks, and tenant 0's prefill takes what the budget has left. Of the
// eight slots six are used: none is given up.
TEST(SchedulerMakingWayTest, NobodyGivesUpASlotWhereChunksLack) {
  SchedulerSnapshot s = Snapshot(2);
  s.limits.max_sequences = 8;
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 5; ++id) s.running.push_back(DecodingOf(0, id, 60, 4));
  s.running.push_back(Prefilling(6, 16, 200, 4));
  s.waiting = {Waiting(9, 1, 380)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:1 4:1 5:1 6:27]");
}

// Tenant 1 waits for what tenant 0's prefill computes: the chunks that it lacks are taken in tenant
// 1's name from tenant 0, but not those of the prefill itself.
TEST(SchedulerMakingWayTest, APrefillGetsItsChunksInTheNameOfWhoWaitsForIt) {
  SchedulerSnapshot s = Snapshot(0);
  s.tenants = {{.served = 5'000'000}, {}};
  s.running = {DecodingOf(0, 1, 60, 4), DecodingOf(0, 2, 60, 4), Prefilling(3, 16, 40, 1)};
  s.waiting = {Waiting(9, 1, 40)};
  s.waiting[0].held = true;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1]");
  s.running[2].lender = 1;
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]");
}

// As with one tenant: of three free chunks the running prefill takes one, its first row behind that
// will need another, and one is the margin.
TEST(SchedulerMakingWayTest, NobodyTakesWhatTheRestOfARunningPrefillNeeds) {
  SchedulerSnapshot s = Snapshot(3);
  s.tenants = {{}, {.served = 1'000'000}};
  s.running = {Prefilling(1, 16, 16, 1)};
  s.waiting = {Waiting(2, 1, 1)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:16]");
  s.free_chunks = 4;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:16 2:1]");
}

// The row that 2 was to have is 5's, once 2 has made way for the growth of 3.
TEST(SchedulerMakingWayTest, RowsOfWhoMakesWayGoToOthers) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = s.limits.step_token_budget = 5;
  s.tenants = {{}, {}};
  s.running = {DecodingOf(0, 1, 320, 21), DecodingOf(0, 2, 320, 21), DecodingOf(1, 3, 16, 1),
               DecodingOf(1, 4, 20, 2), Prefilling(5, 20, 100, 2)};
  s.running[4].tenant = 1;
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1 3:1 4:1 5:2]");
}

// Tenant 0 runs two of four, which is its part for its weight, and the others one each: nobody is
// over its part and can give one up.
TEST(SchedulerMakingWayTest, WhoHasItsPartOfTheSlotsKeepsIt) {
  SchedulerSnapshot s = Snapshot(40);
  s.tenants = {{.served = 5'000'000, .weight_milli = 3000},
               {.served = 5'000'000},
               {.served = 5'000'000},
               {}};
  s.running = {DecodingOf(0, 1, 20, 2), DecodingOf(0, 2, 20, 2), DecodingOf(1, 3, 20, 2),
               DecodingOf(2, 4, 20, 2)};
  s.waiting = {Waiting(5, 3, 4)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:1 4:1]");
}

// Tenant 1 runs two of five, tenant 0 three with four times its weight: it is tenant 1 that has
// more than its part.
TEST(SchedulerMakingWayTest, ASlotIsTakenFromWhoRunsMostForItsWeight) {
  SchedulerSnapshot s = Snapshot(40);
  s.limits.max_sequences = 5;
  s.tenants = {{.served = 5'000'000, .weight_milli = 4000}, {.served = 5'000'000}, {}};
  s.running = {DecodingOf(1, 1, 20, 2), DecodingOf(1, 2, 20, 2), DecodingOf(0, 3, 20, 2),
               DecodingOf(0, 4, 20, 2), DecodingOf(0, 5, 20, 2)};
  s.waiting = {Waiting(6, 2, 4)};
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(2)});
}

// Each of three would need a chunk in the next step. Once 3 has made way the request takes two of
// five, 1 and 2 one each, and one is the margin: that suffices, for 3 takes none.
TEST(SchedulerMakingWayTest, WhoHasMadeWayTakesNoChunkInTheNextStep) {
  SchedulerSnapshot s = Snapshot(1);
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 3; ++id) s.running.push_back(DecodingOf(0, id, 63, 4));
  s.waiting = {Waiting(5, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [3] admit [] work [1:1 2:1]");
}

// The prefill gets all rows that there are: it lacks no chunks now, whatever it will.
TEST(SchedulerMakingWayTest, NobodyMakesWayForAPrefillThatLacksRowsOnly) {
  SchedulerSnapshot s = Snapshot(10);
  s.tenants = {{.served = 5'000'000}, {}};
  s.running = {DecodingOf(0, 1, 320, 21), DecodingOf(0, 2, 320, 21), Prefilling(3, 0, 300, 0)};
  s.running[2].tenant = 1;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:30]");
}

// Two prefills lack chunks: one for 4, whose turn comes first, seven for 5. What 3 gives back is
// enough for 4; 5 waits for its own turn.
TEST(SchedulerMakingWayTest, OthersMakeWayForThePrefillWhoseTurnComesFirst) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = 5;
  s.tenants = {{.served = 5'000'000}, {}, {.served = 1'000'000}};
  for (uint64_t id = 1; id <= 3; ++id) s.running.push_back(DecodingOf(0, id, 20, 6));
  s.running.push_back(Prefilling(4, 16, 8, 1));
  s.running.push_back(Prefilling(5, 16, 100, 1));
  s.running[3].tenant = 1;
  s.running[4].tenant = 2;
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(3)});
}

// As the plan that makes way in the tenants' test, but for a cache that grows at the same time.
TEST(SchedulerMakingWayTest, MakesWayBesideGrowthInTime) {
  SchedulerSnapshot s;
  s.tenants.resize(100);
  s.tenants[0].served = 1'000'000'000;
  for (size_t i = 2; i < s.tenants.size(); ++i) s.tenants[i].has_requests = false;
  s.limits = {.max_sequences = 260, .step_token_budget = 2048, .chunk_tokens = 64};
  s.free_chunks = 10;
  uint64_t id = 1;
  for (; id <= 256; ++id) {
    const int32_t tokens = id <= 12 ? 64 * 20 : 64 * 20 - 30;
    s.running.push_back(Decoding(id, tokens, 80));
    s.running.back().exclusive_chunks = 20;
  }
  for (; id <= 10256; ++id) s.waiting.push_back(Waiting(id, 0, 300));
  s.waiting.push_back(Waiting(id, 1, 64 * (2210 - 37) - 1));
  const double plan_us =
      PlanMicroseconds(s, [](const StepPlan& plan) { EXPECT_EQ(plan.preempt.size(), 111u); });
  std::printf("Plan that makes way beside growth: %.1f us\n", plan_us);
  EXPECT_LT(plan_us, 200.0 * testing::kSlowBuildFactor);
}

}  // namespace
}  // namespace refrain::engine
