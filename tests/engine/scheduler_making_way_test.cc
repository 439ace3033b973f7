// Several tenants (API keys), and not enough for all: who passes whom, and in which plans others
// make way.

#include <gtest/gtest.h>

#include "engine/scheduler.h"
#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

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

}  // namespace
}  // namespace refrain::engine
