// Several tenants (API keys): who comes first, and who makes way for whom.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

// Tenant 0 came first with more than fits, tenant 1 with one: served less, it goes first.
TEST(SchedulerTenantsTest, TheTenantThatWasServedLeastIsAdmittedFirst) {
  SchedulerSnapshot s = Snapshot(20);
  s.tenants = {{.served = 100'000}, {.served = 0}};
  s.waiting = {Waiting(1, 0, 20), Waiting(2, 0, 20), Waiting(3, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3 1] work [3:20 1:12]");
  s.tenants[0].served = 0;  // of equals the first
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1 3] work [1:20 3:12]");
}

// What a tenant gets within the plan counts: they take turns, by weight.
TEST(SchedulerTenantsTest, TenantsTakeTurnsWithinAPlan) {
  SchedulerSnapshot s = Snapshot(40);
  s.limits.max_sequences = 8;
  s.tenants = {{}, {}};
  for (uint64_t id = 1; id <= 4; ++id) s.waiting.push_back(Waiting(id, 0, 4));
  for (uint64_t id = 5; id <= 8; ++id) s.waiting.push_back(Waiting(id, 1, 4));
  EXPECT_EQ(Plan(s).ToString(),
            "preempt [] admit [1 5 2 6 3 7 4 8] work [1:4 5:4 2:4 6:4 3:4 7:4 4:4 8:4]");
  s.tenants[1].weight_milli = 3000;
  s.limits.step_token_budget = 16;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [1 5 6 7] work [1:4 5:4 6:4 7:4]");
}

// The half-done prefill of a tenant that has had more does not hold up a newcomer.
TEST(SchedulerTenantsTest, ALongPrefillDoesNotHoldUpAnotherTenant) {
  SchedulerSnapshot s = Snapshot(400);
  s.tenants = {{.served = 64'000}, {}};
  s.running = {Prefilling(1, 64, 5000, 4)};
  s.waiting = {Waiting(2, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:12 2:20]");
}

// Tenant 2 waits for what tenant 0 computes: that comes in tenant 2's turns, before tenant 1's.
TEST(SchedulerTenantsTest, APrefillHasTheTurnsOfWhoWaitsForIt) {
  SchedulerSnapshot s = Snapshot(400);
  s.tenants = {{.served = 64'000}, {.served = 32'000}, {}};
  s.running = {Prefilling(1, 64, 5000, 4)};
  s.waiting = {Waiting(2, 1, 20), Waiting(3, 2, 60)};
  s.waiting[1].held = true;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:12 2:20]");
  s.running[0].lender = 2;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:32]");
  s.tenants[2].served = 48'000;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [2] work [1:12 2:20]");
}

// Ageing, priority and sharing decide among the sequences of one tenant only.
TEST(SchedulerTenantsTest, NothingOvertakesATenantsTurn) {
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    SchedulerSnapshot s = Snapshot(40);
    s.limits.policy = policy;
    s.limits.max_sequences = 2;
    s.step = 100000;  // all of tenant 0 have aged
    s.tenants = {{.served = 5'000'000}, {}};
    s.waiting = {Waiting(1, 0, 4), Waiting(2, 0, 4), Waiting(3, 1, 4), Waiting(4, 1, 4)};
    s.waiting[2].since_step = s.waiting[3].since_step = s.step;
    s.waiting[2].priority = 9;
    s.waiting[3].priority = 9;
    EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [3 4] work [3:4 4:4]");
  }
}

// 2 would be passed by 3, of its own tenant, and then come after 4, which leaves too few chunks.
TEST(SchedulerTenantsTest, ThoseThatSharePassNobodyForWhatOtherTenantsLeave) {
  SchedulerSnapshot s = Snapshot(33);
  s.limits.max_sequences = 8;
  s.limits.step_token_budget = 4096;
  s.tenants = {{}, {.served = 1}};
  s.running = {DecodingOf(0, 1, 50, 4)};
  s.waiting = {Waiting(2, 0, 320), Waiting(3, 0, 64), Waiting(4, 1, 160)};
  s.waiting[1].shared_tokens = 48;
  s.waiting[1].shares_running = true;
  EXPECT_EQ(Plan(s).admit, (std::vector{Id(2), Id(4)}));
  s.free_chunks = 100;
  EXPECT_EQ(Plan(s).admit, (std::vector{Id(3), Id(4), Id(2)}));
}

// All slots are one tenant's: its youngest gives way to a tenant that runs nothing, once.
TEST(SchedulerTenantsTest, ATenantOverItsPartOfTheSlotsGivesOneUp) {
  SchedulerSnapshot s = Snapshot(40);
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 4; ++id) s.running.push_back(Decoding(id, 20, 2));
  s.waiting = {Waiting(5, 0, 4), Waiting(6, 1, 4)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [4] admit [] work [1:1 2:1 3:1]");
  s.limits.step_token_budget = 4;  // the rows of those that decode leave nothing
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(4)});
  s.running[3].tenant = 1;  // it runs one: its turn comes when a slot is free
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:1 4:1]");
  // The tenant served least has nothing waiting: the next one's turn.
  s.tenants.push_back({.served = 1'000'000});
  s.waiting = {Waiting(6, 2, 4)};
  for (const int32_t budget : {4, 5}) {
    s.limits.step_token_budget = budget;
    EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(3)}) << budget;
  }
}

// The tenant's most urgent request came last: an older one gives way.
TEST(SchedulerTenantsTest, ASlotIsTakenFromTheLeastUrgent) {
  SchedulerSnapshot s = Snapshot(40);
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 4; ++id) s.running.push_back(Decoding(id, 20, 2));
  for (size_t i = 0; i < 3; ++i) s.running[i].priority = 10;
  s.waiting = {Waiting(6, 1, 4)};
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(4)});
  s.limits.policy = Policy::kPriority;
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(3)});
}

// One tenant's three long sequences hold 12 of 13 chunks. Another's request needs two of them, and
// one is the margin: the youngest makes way.
TEST(SchedulerTenantsTest, ATenantOverItsPartOfTheCacheGivesUpWhatAnotherNeeds) {
  SchedulerSnapshot s = Snapshot(1);
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 3; ++id) s.running.push_back(DecodingOf(0, id, 60, 4));
  s.waiting = {Waiting(5, 0, 4), Waiting(6, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [3] admit [] work [1:1 2:1]");
  s.waiting[1].prefill_tokens = 120;  // eight chunks: two make way in the same plan
  EXPECT_EQ(Plan(s).ToString(), "preempt [3 2] admit [] work [1:1]");
  // What would not help is not done: ten chunks are more than the last one leaves.
  s.waiting[1].prefill_tokens = 150;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:1]");
  // By weight its part may be all that it has.
  s.waiting[1].prefill_tokens = 20;
  s.tenants[0].weight_milli = 20'000;
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:1]");
}

// As above, but all need a chunk for their next token: after one has made way the request would not
// fit in the next plan.
TEST(SchedulerTenantsTest, WhatMakesWayIsEnoughBesideTheGrowthOfOthers) {
  SchedulerSnapshot s = Snapshot(1);
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 3; ++id) s.running.push_back(DecodingOf(0, id, 63, 4));
  s.waiting = {Waiting(6, 1, 60)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [3 2] admit [] work [1:1]");
}

// Who has no requests has no part.
TEST(SchedulerTenantsTest, PartsOfTheCacheAreOfThoseThatHaveRequests) {
  SchedulerSnapshot s = Snapshot(1);
  s.tenants = {{.served = 5'000'000, .weight_milli = 9000}, {}, {.weight_milli = 90'000}};
  for (uint64_t id = 1; id <= 3; ++id) s.running.push_back(DecodingOf(0, id, 60, 4));
  s.waiting = {Waiting(6, 1, 20)};
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(3)});
  s.tenants[2].has_requests = false;
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(3)});
  s.tenants[0].weight_milli = 20'000;
  EXPECT_TRUE(Plan(s).preempt.empty());
}

// The slots are tenant 0's and so is the cache: one plan makes way for both.
TEST(SchedulerTenantsTest, OnePlanFreesASlotAndChunks) {
  SchedulerSnapshot s = Snapshot(0);
  s.tenants = {{.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 4; ++id) s.running.push_back(DecodingOf(0, id, 60, 4));
  s.waiting = {Waiting(6, 1, 80)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [4 3] admit [] work [1:1 2:1]");
}

// A sequence that has the cache to itself is nobody's youngest: the other waits for its end.
TEST(SchedulerTenantsTest, ATenantsOnlySequenceKeepsItsChunks) {
  SchedulerSnapshot s = Snapshot(1);
  s.tenants = {{.served = 5'000'000}, {}};
  s.running = {DecodingOf(0, 1, 190, 12)};
  s.waiting = {Waiting(6, 1, 20)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1]");
}

// Tenant 0's three sequences share ten chunks and have one each, tenant 1's have six each: it is
// tenant 1 that has more than its part.
TEST(SchedulerTenantsTest, ChunksThatATenantsSequencesShareCountOnce) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = 8;
  s.tenants = {{.served = 5'000'000}, {.served = 5'000'000}, {}};
  for (uint64_t id = 1; id <= 3; ++id) {
    s.running.push_back(DecodingOf(0, id, 170, 11));
    Share(&s.running.back(), 10, 0);
  }
  s.shared_runs = {{.chunks = 10, .holders = 3}};
  for (uint64_t id = 4; id <= 6; ++id) s.running.push_back(DecodingOf(1, id, 90, 6));
  s.waiting = {Waiting(7, 2, 20)};
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(6)});
}

// Two sequences that share a prompt give all of it back together.
TEST(SchedulerTenantsTest, WhatTheLastSharerGivesBackMakesWay) {
  SchedulerSnapshot s = Snapshot(9);  // of 60
  s.limits.max_sequences = 8;
  s.tenants = {{.served = 5'000'000}, {}};
  s.running = {DecodingOf(0, 1, 310, 20), DecodingOf(0, 2, 470, 30), DecodingOf(0, 3, 470, 30)};
  Share(&s.running[1], 29, 0);
  Share(&s.running[2], 29, 0);
  s.shared_runs = {{.chunks = 29, .holders = 2}};
  s.waiting = {Waiting(9, 1, 390)};
  EXPECT_EQ(Plan(s).ToString(), "preempt [3 2] admit [] work [1:1]");
  s.shared_runs[0].holders = 3;  // another has it that does not run: nothing is gained
  EXPECT_EQ(Plan(s).ToString(), "preempt [] admit [] work [1:1 2:1 3:1]");
}

// Tenant 0 holds four prefixes, each for two sequences: 64 of 94 chunks, by none of which it would
// be over its part alone.
TEST(SchedulerTenantsTest, EverySharedPrefixOfATenantCounts) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = 16;
  s.tenants = {{}, {}};
  for (uint64_t id = 1; id <= 8; ++id) {
    s.running.push_back(DecodingOf(0, id, id == 1 ? 240 : 230, 15));
    Share(&s.running.back(), 14, static_cast<int32_t>(id - 1) / 2);
  }
  s.shared_runs.assign(4, {.chunks = 14, .holders = 2});
  s.running.push_back(DecodingOf(1, 9, 470, 30));
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(8)});
}

// What tenant 0 has below the root that all share stays while one of its sequences runs, and so
// does the root.
TEST(SchedulerTenantsTest, ASharedRunStaysWithItsOtherHolders) {
  SchedulerSnapshot s = Snapshot(0);
  s.limits.max_sequences = 8;
  s.tenants = {{.served = 5'000'000}, {.served = 5'000'000}, {}};
  s.shared_runs = {{.chunks = 10, .holders = 4}, {.chunks = 12, .holders = 2, .parent = 0}};
  for (uint64_t id : {1, 2}) {
    s.running.push_back(DecodingOf(0, id, 360, 23));
    Share(&s.running.back(), 22, 1);
  }
  for (uint64_t id : {3, 4}) {
    s.running.push_back(DecodingOf(1, id, 170, 11));
    Share(&s.running.back(), 10, 0);
  }
  s.waiting = {Waiting(7, 2, 1)};  // a chunk, and one as a margin
  EXPECT_EQ(Plan(s).preempt, (std::vector<SequenceId>{Id(2), Id(4)}));
  s.waiting = {Waiting(7, 2, 20)};
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{});
}

// Who is over its part of the cache gives way to the growth of others, though they are younger.
TEST(SchedulerTenantsTest, GrowthTakesChunksFromTheTenantThatHasMost) {
  for (const Policy policy : {Policy::kFcfs, Policy::kPriority}) {
    SchedulerSnapshot s = Snapshot(0);
    s.limits.policy = policy;
    s.tenants = {{}, {}};
    s.running = {DecodingOf(0, 1, 60, 4), DecodingOf(0, 2, 60, 4), DecodingOf(1, 3, 32, 2)};
    EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1 3:1]");
  }
}

// Each tenant runs one sequence. Whose chunks are taken for the growth of the other does not depend
// on the priorities that clients give theirs, as those are compared within one tenant.
TEST(SchedulerTenantsTest, APriorityTakesNoChunksFromAnotherTenant) {
  for (const int32_t priority : {-100, 0, 100}) {
    SchedulerSnapshot s = Snapshot(0);
    s.limits.policy = Policy::kPriority;
    s.tenants = {{.served = 1000}, {.served = 900'000}};
    s.running = {DecodingOf(0, 1, 48, 3), DecodingOf(1, 2, 801, 51)};
    s.running[1].priority = priority;
    EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]") << priority;
    // Nobody who runs two is over its part: of the youngest one's tenant the least urgent gives
    // way.
    s.running = {DecodingOf(0, 1, 160, 10), DecodingOf(1, 2, 32, 2), DecodingOf(1, 3, 33, 3)};
    s.running[0].priority = 9;
    s.running[1].priority = 1;
    s.running[2].priority = std::min(priority, 0);
    EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1 3:1]") << priority;
  }
}

// What is left of a plan that takes chunks, and the one prefill that goes on where all are stuck,
// are the oldest tenant's, whatever the priority of the other's.
TEST(SchedulerTenantsTest, APriorityPutsNoPrefillBeforeAnotherTenants) {
  for (const int32_t priority : {-9, 0, 9}) {
    SchedulerSnapshot s = Snapshot(0);
    s.limits.policy = Policy::kPriority;
    s.tenants = {{}, {}};
    s.running = {DecodingOf(0, 1, 32, 2), Prefilling(2, 0, 100, 7), Prefilling(3, 0, 100, 7),
                 DecodingOf(1, 4, 100, 7)};
    s.running[2].tenant = 1;
    s.running[2].priority = priority;
    s.running[3].priority = 9;
    EXPECT_EQ(Plan(s).ToString(), "preempt [4] admit [] work [1:1 2:31]") << priority;
    s.running = {Prefilling(1, 32, 40, 2), Prefilling(2, 32, 40, 2)};
    s.running[1].tenant = 1;
    s.running[1].priority = priority;
    EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1]") << priority;
  }
}

// Growth of those that decode took what a running prefill was admitted for.
TEST(SchedulerTenantsTest, ARunningPrefillGetsItsChunksFromTheTenantThatHasMost) {
  SchedulerSnapshot s = Snapshot(1);
  s.tenants = {{.served = 5'000'000}, {}};
  s.running = {DecodingOf(0, 1, 60, 4), DecodingOf(0, 2, 60, 4), Prefilling(3, 16, 40, 1)};
  s.running.back().tenant = 1;
  EXPECT_EQ(Plan(s).ToString(), "preempt [2] admit [] work [1:1 3:16]");
}

// With more tenants than slots they take turns: tenants 4 to 7 wait behind 0 to 3, which run one
// sequence each.
TEST(SchedulerTenantsTest, OfMoreTenantsThanSlotsWhoHadItsTurnGivesWay) {
  SchedulerSnapshot s = Snapshot(40);
  s.limits.turn_tokens = 64;
  s.tenants.resize(8);
  for (uint64_t id = 1; id <= 4; ++id) {
    s.running.push_back(DecodingOf(static_cast<int32_t>(id - 1), id, 100, 7));
    s.running.back().turn_begin = 37;  // 63 tokens
    s.tenants[id - 1].served = 1'000'000;
  }
  for (uint64_t id = 5; id <= 8; ++id) {
    s.waiting.push_back(Waiting(id, static_cast<int32_t>(id - 1), 4));
  }
  const std::string nobody = "preempt [] admit [] work [1:1 2:1 3:1 4:1]";
  EXPECT_EQ(Plan(s).ToString(), nobody);
  s.running[1].turn_begin = s.running[2].turn_begin = 36;
  s.tenants[2].served = 1'000'001;  // of those who had theirs the one served most
  EXPECT_EQ(Plan(s).ToString(), "preempt [3] admit [] work [1:1 2:1 4:1]");
  s.running[2].decoding = false;  // computed again: that is no turn
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(2)});
  // Who waits has been served as much.
  for (TenantEntry& tenant : s.tenants) tenant.served = 1'000'000;
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{});
  // A slot for each.
  for (size_t i = 4; i < 8; ++i) s.tenants[i].served = 0;
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{Id(2)});
  s.tenants[1].weight_milli = 3000;  // nearly half of the slots are its part
  EXPECT_EQ(Plan(s).preempt, std::vector<SequenceId>{});
}

// A snapshot whose sequences all belong to one of the tenants is planned as with no tenants.
TEST(SchedulerTenantsTest, OneTenantAloneChangesNothing) {
  SchedulerSnapshot s = Snapshot(6);
  s.running = {Prefilling(1, 16, 16, 1), Decoding(2, 20, 2)};
  s.waiting = {Waiting(3, 0, 10), Waiting(4, 0, 10)};
  const StepPlan alone = Plan(s);
  s.tenants = {{.served = 7}};
  EXPECT_EQ(Plan(s), alone);
  s.tenants = {{.served = 7}, {.served = 1}};
  EXPECT_EQ(Plan(s), alone);
}

// The bound. Tenant 0 has 1,000 requests waiting and runs on all slots with answers of 400 tokens;
// tenant 1 comes at an arbitrary step with one request. Its prompt of P tokens is computed at the
// latest in the plan number 2 + ceil(P / (budget - max_sequences)), whatever the policy: one plan
// to free a slot, one to admit, and the rest of the budget is its own, for it has been served
// least.
TEST(SchedulerTenantsTest, AThousandRequestsDelayAnothersByAStatedBound) {
  constexpr int32_t kPrompt = 200;
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    for (const int64_t arrival : {0, 1, 7, 50, 333}) {
      SchedulerSnapshot s = Snapshot(100'000);
      s.limits = {
          .max_sequences = 8, .step_token_budget = 72, .chunk_tokens = 16, .policy = policy};
      s.tenants = {{}, {}};
      const SequenceId late = Id(5000);
      for (uint64_t id = 1; id <= 1000; ++id) s.waiting.push_back(Waiting(id, 0, 100));
      int64_t prompt_done_at = -1;
      for (; s.step < 2000 && prompt_done_at < 0; ++s.step) {
        if (s.step == arrival) {
          s.tenants[1].served = s.tenants[0].served;  // no lag to its credit
          s.waiting.push_back(Waiting(5000, 1, kPrompt));
          s.waiting.back().since_step = s.step;
        }
        const StepPlan plan = Plan(s);
        for (const SequenceId id : plan.preempt) {
          const auto found = std::find_if(s.running.begin(), s.running.end(),
                                          [&](const auto& e) { return e.sequence == id; });
          WaitingEntry again = Waiting(static_cast<uint64_t>(id), found->tenant, 100);
          s.running.erase(found);
          s.waiting.push_front(again);
        }
        for (const SequenceId id : plan.admit) {
          const auto found = std::find_if(s.waiting.begin(), s.waiting.end(),
                                          [&](const auto& e) { return e.sequence == id; });
          s.running.push_back(
              {.sequence = id, .runnable_tokens = found->prefill_tokens, .tenant = found->tenant});
          s.waiting.erase(found);
        }
        std::sort(s.running.begin(), s.running.end(),
                  [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
        for (const StepWork& work : plan.work) {
          const auto found = std::find_if(s.running.begin(), s.running.end(), [&](const auto& e) {
            return e.sequence == work.sequence;
          });
          ASSERT_NE(found, s.running.end());
          s.tenants[found->tenant].served += s.tenants[found->tenant].CostOf(work.num_tokens);
          found->next_token += work.num_tokens;
          found->reserved_tokens = (found->next_token + 15) / 16 * 16;
          found->runnable_tokens = std::max(1, found->runnable_tokens - work.num_tokens);
          found->decoding = found->runnable_tokens == 1;
          if (work.sequence == late && found->next_token >= kPrompt) prompt_done_at = s.step;
        }
        std::erase_if(s.running, [](const auto& entry) { return entry.next_token >= 500; });
      }
      ASSERT_GE(prompt_done_at, 0) << "policy " << static_cast<int>(policy);
      EXPECT_LE(prompt_done_at - arrival + 1, 2 + (kPrompt + 63) / 64)
          << "policy " << static_cast<int>(policy) << ", came at step " << arrival;
    }
  }
}

// The same bound where it is the cache that is full. A pool of 60 chunks is tenant 0's: requests of
// up to 13 chunks, a thousand of them; tenant 1's takes 14 with its first token, and a margin of at
// most 4: less than half. Preempted sequences start all over here, the worst case.
TEST(SchedulerTenantsTest, AFullCacheDelaysAnotherTenantByTheSameBound) {
  constexpr int32_t kPool = 60, kPrompt = 200;
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    for (const int64_t arrival : {20, 57, 100, 101, 102, 333}) {
      SchedulerSnapshot s = Snapshot(kPool);
      s.limits = {
          .max_sequences = 16, .step_token_budget = 80, .chunk_tokens = 16, .policy = policy};
      s.tenants = {{}, {.has_requests = false}};
      for (uint64_t id = 1; id <= 1000; ++id) s.waiting.push_back(Waiting(id, 0, 100));
      int64_t admitted_at = -1, prompt_done_at = -1;
      int finished = 0;
      for (; s.step < 1500; ++s.step) {
        if (s.step == arrival) {
          s.tenants[1] = {.served = s.tenants[0].served};  // no lag to its credit
          s.waiting.push_back(Waiting(5000, 1, kPrompt));
          s.waiting.back().since_step = s.step;
        }
        const StepPlan plan = Plan(s);
        const auto running = [&](SequenceId id) { return FindEntry(s.running, id); };
        for (const SequenceId id : plan.preempt) {
          s.free_chunks += running(id)->exclusive_chunks;
          const bool late = running(id)->tenant == 1;
          EXPECT_FALSE(late);
          s.running.erase(running(id));
          s.waiting.insert(FindEntry(s.waiting, id), Waiting(static_cast<uint64_t>(id), 0, 100));
        }
        for (const SequenceId id : plan.admit) {
          const auto found = FindEntry(s.waiting, id);
          if (found->tenant == 1) admitted_at = s.step;
          s.running.insert(
              running(id),
              {.sequence = id, .runnable_tokens = found->prefill_tokens, .tenant = found->tenant});
          s.waiting.erase(found);
        }
        for (const StepWork& work : plan.work) {
          RunningEntry& entry = *running(work.sequence);
          s.tenants[entry.tenant].served += s.tenants[entry.tenant].CostOf(work.num_tokens);
          entry.next_token += work.num_tokens;
          const int32_t chunks = (entry.next_token + 15) / 16;
          s.free_chunks -= chunks - entry.exclusive_chunks;
          ASSERT_GE(s.free_chunks, 0);
          entry.exclusive_chunks = chunks;
          entry.reserved_tokens = chunks * 16;
          entry.runnable_tokens = std::max(1, entry.runnable_tokens - work.num_tokens);
          entry.decoding = entry.runnable_tokens == 1;
          if (entry.tenant == 1 && entry.next_token >= kPrompt && prompt_done_at < 0) {
            prompt_done_at = s.step;
          }
        }
        for (const RunningEntry& entry : s.running) {
          if (entry.next_token < 205) continue;
          s.free_chunks += entry.exclusive_chunks;
          s.tenants[1].has_requests &= entry.tenant != 1;
          ++finished;
        }
        std::erase_if(s.running, [](const auto& entry) { return entry.next_token >= 205; });
      }
      const std::string where = "policy " + std::to_string(static_cast<int>(policy)) + ", step " +
                                std::to_string(arrival);
      EXPECT_GE(admitted_at, arrival) << where;
      EXPECT_LE(admitted_at, arrival + 1) << where;
      EXPECT_LE(prompt_done_at - arrival + 1, 2 + (kPrompt + 63) / 64) << where;
      EXPECT_GT(finished, 20) << where;
    }
  }
}

// The cache is one tenant's; another's request needs 110 of its sequences to make way.
TEST(SchedulerTenantsTest, MakesWayForAnotherTenantInTime) {
  SchedulerSnapshot s;
  s.tenants.resize(100);
  s.tenants[0].served = 1'000'000'000;
  for (size_t i = 2; i < s.tenants.size(); ++i) s.tenants[i].has_requests = false;
  s.limits = {.max_sequences = 260, .step_token_budget = 2048, .chunk_tokens = 64};
  s.free_chunks = 10;
  uint64_t id = 1;
  for (; id <= 256; ++id) {
    s.running.push_back({.sequence = Id(id),
                         .runnable_tokens = 1,
                         .decoding = true,
                         .next_token = 64 * 20 - 30,
                         .reserved_tokens = 64 * 20,
                         .exclusive_chunks = 20});
  }
  for (; id <= 10256; ++id) s.waiting.push_back(Waiting(id, 0, 300));
  // 110 give 2,200 chunks; 146 stay, whose margin is 37 of these and the 10 that are free.
  s.waiting.push_back(Waiting(id, 1, 64 * (2210 - 37) - 1));
  const double plan_us =
      PlanMicroseconds(s, [](const StepPlan& plan) { EXPECT_EQ(plan.preempt.size(), 110u); });
  std::printf("Plan that makes way: %.1f us\n", plan_us);
  EXPECT_LT(plan_us, 200.0 * testing::kSlowBuildFactor);
}

}  // namespace
}  // namespace refrain::engine
