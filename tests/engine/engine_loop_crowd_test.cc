// What a turn costs the engine thread while ten thousand requests wait: measured (tag `exclusive`).

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "tests/engine/costless_loop.h"
#include "tests/support/rounds.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using testing::CostlessLoop;
using testing::CostlessRequest;

constexpr int32_t kRunning = 256;

struct TurnUs {
  double plan = 1e9;    // the pure part
  double others = 1e9;  // all else
};

// 255 decode, and one computes a long prompt, a few tokens in each step. Of those that wait half
// are held for it, the others have prompts of their own. The best of some turns.
TurnUs BestTurn(int32_t waiting, Policy policy, int32_t tenants) {
  double plan_us = 0;
  CostlessLoop h({.num_chunks = 4096,
                  .scheduler = {.max_sequences = kRunning,
                                .step_token_budget = kRunning + 8,
                                .policy = policy},
                  .planner = [&plan_us](const SchedulerSnapshot& snapshot) {
                    const auto begin = std::chrono::steady_clock::now();
                    StepPlan plan = Plan(snapshot);
                    plan_us = std::chrono::duration<double, std::micro>(
                                  std::chrono::steady_clock::now() - begin)
                                  .count();
                    return plan;
                  }});
  const auto submit = [&](CostlessRequest request, int32_t number) {
    request.priority = number % 7;
    if (tenants > 0) request.tenant = std::to_string(number % tenants);
    std::vector<TokenId> prompt(static_cast<size_t>(request.prompt_tokens), TokenId{1});
    for (int32_t digit = 0, rest = number + 1; digit < 4 && request.seed > 0; ++digit, rest /= 20) {
      prompt[static_cast<size_t>(digit)] = TokenId{rest % 20};
    }
    h.SubmitPrompt(request, std::move(prompt));
  };
  for (int32_t i = 1; i < kRunning; ++i)
    submit({.seed = 1, .prompt_tokens = 5, .max_tokens = 500}, i);
  while (h.loop.stats().running_sequences < kRunning - 1) h.loop.Turn();
  submit({.prompt_tokens = 1024}, 0);
  h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, kRunning);
  for (int32_t i = 0; i < waiting; ++i) {
    if (i % 2 == 0) {
      submit({.prompt_tokens = 1024}, i);
    } else {
      submit({.seed = 1, .prompt_tokens = 20}, 1000 + i);
    }
  }
  h.loop.Turn();
  TurnUs best;
  for (int i = 0; i < 60; ++i) {
    const double us = h.TurnUs();
    best.plan = std::min(best.plan, plan_us);
    best.others = std::min(best.others, us - plan_us);
  }
  EXPECT_EQ(h.loop.held_sequences(), static_cast<size_t>(waiting / 2));
  EXPECT_EQ(h.loop.stats().running_sequences, kRunning);
  return best;
}

// Beside its plan a turn goes over all that wait up to three times, for what those that are held
// lend, and for who lacks something: 10 ns each at most.
TEST(EngineLoopCrowdTest, ATurnCostsLittleMoreWhenTenThousandWait) {
  for (const Policy policy : {Policy::kFcfs, Policy::kLongestPrefix, Policy::kPriority}) {
    for (const int32_t tenants : {0, 2, 100}) {
      TurnUs few, many;
      EXPECT_TRUE(testing::SomeRoundKeeps([&] {
        few = BestTurn(16, policy, tenants);
        many = BestTurn(10'000, policy, tenants);
        std::printf(
            "policy %d, %d tenants: plan %.1f us, others %.1f us; with 16 %.1f and %.1f us\n",
            static_cast<int>(policy), tenants, many.plan, many.others, few.plan, few.others);
        return many.plan < 200 * testing::kSlowBuildFactor &&
               many.others < few.others + 150 * testing::kSlowBuildFactor;
      }));
    }
  }
}

}  // namespace
}  // namespace refrain::engine
