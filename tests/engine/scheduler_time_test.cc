// Planning takes no time that a step would show, whatever runs and waits.

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "tests/engine/scheduler_snapshots.h"

namespace refrain::engine {
namespace {

struct Crowd {
  std::string name;
  // Changes what waits or runs; `number` counts either from 0.
  std::function<void(WaitingEntry*, int32_t number)> waiting;
  std::function<void(RunningEntry*, int32_t number)> running;
  int32_t slots = 4;
  int32_t free_chunks = 100'000;
  std::optional<size_t> admitted = 4;
  int64_t step = 0;
};

const Crowd kCrowds[] = {
    {"Alike", nullptr, nullptr},
    {"HalfHeld",
     [](WaitingEntry* entry, int32_t number) {
       entry->held = number % 2 == 0;
       entry->producer = Id(static_cast<uint64_t>(1 + number % 256));
     },
     nullptr},
    {"OneNewPrompt", [](WaitingEntry* entry, int32_t) { entry->next_chunk_key = 7; }, nullptr, 4,
     100'000, 1},
    {"EachItsOwnPrompt",
     [](WaitingEntry* entry, int32_t number) {
       entry->next_chunk_key = static_cast<uint64_t>(number) + 1;
     },
     nullptr, 60, 100'000, 60},
    {"AHundredNewPrompts",
     [](WaitingEntry* entry, int32_t number) {
       entry->next_chunk_key = static_cast<uint64_t>(number / 100) + 1;
     },
     nullptr, 60, 100'000, std::nullopt},
    {"SharingWithRunning",
     [](WaitingEntry* entry, int32_t number) {
       entry->shared_tokens = 256;
       entry->shares_running = number % 3 == 0;
     },
     nullptr},
    // All have waited for long, and come before those that run; but nearly all are held.
    {"OlderThanPrefills",
     [](WaitingEntry* entry, int32_t number) {
       entry->held = number < 9'996;
       entry->producer = Id(20'001);
     },
     [](RunningEntry* entry, int32_t number) {
       entry->sequence = Id(20'001 + static_cast<uint64_t>(number));
       entry->decoding = false;
     },
     4, 100'000, 4, 5000},
    // Chunks are few: some give back what they have, in runs of eight that share.
    {"InSharedRuns", nullptr,
     [](RunningEntry* entry, int32_t number) {
       entry->exclusive_chunks = 40;
       entry->shared_run = number / 8;
     },
     4, 100, 0},
};

class TenThousandWaitTest : public ::testing::TestWithParam<Crowd> {};

// 10,000 waiting and 256 running: under 200 us.
TEST_P(TenThousandWaitTest, PlansInTime) {
  const Crowd& crowd = GetParam();
  for (const size_t tenants : {0, 2, 100}) {
    for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
      SchedulerSnapshot s;
      s.tenants.resize(tenants);
      const auto tenant_of = [&](uint64_t id) {
        return tenants == 0 ? 0 : static_cast<int32_t>(id % tenants);
      };
      s.limits = {.max_sequences = 256 + crowd.slots,
                  .step_token_budget = 2048 + 300 * crowd.slots,
                  .chunk_tokens = 64,
                  .policy = policy};
      s.free_chunks = crowd.free_chunks;
      s.step = crowd.step;
      uint64_t id = 1;
      for (; id <= 256; ++id) {
        s.running.push_back(Decoding(id, 64 * 20, 80));
        s.running.back().tenant = tenant_of(id);
        if (crowd.running) crowd.running(&s.running.back(), static_cast<int32_t>(id) - 1);
        const auto runs = static_cast<size_t>(s.running.back().shared_run) + 1;  // of -1, none: 0
        if (runs > s.shared_runs.size()) s.shared_runs.push_back({.chunks = 40, .parent = -1});
        if (runs > 0) ++s.shared_runs[runs - 1].holders;
      }
      for (; id <= 10256; ++id) {
        s.waiting.push_back({.sequence = Id(id),
                             .prefill_tokens = 300,
                             .priority = static_cast<int32_t>(id * 7919 % 100),
                             .tenant = tenant_of(id)});
        if (crowd.waiting) crowd.waiting(&s.waiting.back(), static_cast<int32_t>(id) - 257);
      }
      const double plan_us = PlanMicroseconds(s, [&](const StepPlan& plan) {
        if (crowd.admitted.has_value()) {
          EXPECT_EQ(plan.admit.size(), *crowd.admitted);
        }
        EXPECT_NE(plan.admit.empty(), plan.preempt.empty());
      });
      std::printf("Plan, %s, policy %d, %zu tenants: %.1f us\n", crowd.name.c_str(),
                  static_cast<int>(policy), tenants, plan_us);
      EXPECT_LT(plan_us, 200.0 * testing::kSlowBuildFactor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Crowds, TenThousandWaitTest, ::testing::ValuesIn(kCrowds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace refrain::engine
