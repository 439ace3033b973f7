// What requests that pass others for sharing a prefix (fcfs) cost these, in steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using testing::LoopHarness;
using testing::Prompt;
using testing::TokenRequest;

constexpr int32_t kDelaySteps = SchedulerLimits{}.grouping_delay_steps;
constexpr int32_t kBudget = 32;
constexpr int32_t kPrefixTokens = 1500;

// Plans as the scheduler does, also as if nobody might pass, and notes when sequences start. The
// tests know them by the lengths of their prompts.
class WatchingPlanner {
 public:
  explicit WatchingPlanner(bool may_pass) : may_pass_(may_pass) {}

  StepPlan operator()(SchedulerSnapshot snapshot) {
    for (WaitingEntry& entry : snapshot.waiting) entry.shares_running &= may_pass_;
    const StepPlan plan = Plan(snapshot);
    for (const SequenceId id : plan.admit) {
      started_.emplace(FindEntry(snapshot.waiting, id)->prefill_tokens, snapshot.step);
    }
    for (const WaitingEntry& entry : snapshot.waiting) {
      if (entry.held) held_until_[entry.prefill_tokens] = snapshot.step;
    }
    return plan;
  }

  int64_t started(int32_t prompt_tokens) const { return started_.at(prompt_tokens); }
  // The last step in which it waited for what another computes.
  int64_t held_until(int32_t prompt_tokens) const { return held_until_.at(prompt_tokens); }

 private:
  const bool may_pass_;
  std::map<int32_t, int64_t> started_;     // steps, by prompt_tokens
  std::map<int32_t, int64_t> held_until_;  // the same
};

class PassingLoop {
 public:
  explicit PassingLoop(bool may_pass = true)
      : planner(may_pass),
        harness({.num_chunks = 2000,
                 .max_sequences = 12,
                 .step_token_budget = kBudget,
                 .max_context_tokens = 8192,
                 .planner = std::ref(planner)}) {}

  // `own_tokens` that no other has behind `shared_tokens` that all have.
  void Submit(int32_t shared_tokens, int32_t own_tokens, int32_t max_tokens,
              const std::string& tenant = "") {
    std::vector<int32_t> prompt = Prompt(shared_tokens, 1);
    const std::vector<int32_t> own = Prompt(own_tokens, 2 + static_cast<int32_t>(streams_.size()));
    prompt.insert(prompt.end(), own.begin(), own.end());
    Request request = TokenRequest(prompt, max_tokens);
    request.tenant = tenant;
    streams_.push_back(harness.Submit(std::move(request)));
  }

  void Turns(int turns) {
    for (int i = 0; i < turns; ++i) harness.loop.Turn();
  }

  void Finish() {
    harness.RunUntilIdle();
    for (const auto& stream : streams_) EXPECT_TRUE(harness.Read(stream).status.ok());
    harness.CheckIdle();
  }

  WatchingPlanner planner;
  LoopHarness harness;

 private:
  std::vector<std::shared_ptr<TokenStream>> streams_;
};

constexpr int32_t kPassedTokens = 97;  // of the one whom the others pass

// One runs the prefix, and another's prompt takes all rows when the one comes that is passed, and
// behind it five with the prefix and `own_tokens` each. The step in which it starts.
int64_t StepOfPassed(int32_t own_tokens, bool may_pass, bool other_tenant) {
  PassingLoop h(may_pass);
  h.Submit(kPrefixTokens, 1, 500);
  h.Turns(kPrefixTokens / kBudget + 5);
  if (other_tenant) h.Submit(0, 1, 400, "another");
  h.Submit(0, 300, 1);
  h.Turns(4);
  h.Submit(0, kPassedTokens, 1);
  for (int i = 0; i < 5; ++i) {
    h.Turns(1);
    h.Submit(kPrefixTokens, own_tokens + i, 20);
  }
  h.Finish();
  if (may_pass) {
    EXPECT_LT(h.planner.started(kPrefixTokens + own_tokens), h.planner.started(kPassedTokens));
  }
  return h.planner.started(kPassedTokens);
}

// Prompts of up to 50 steps: whoever passes has the rows until the other's delay is over, no
// longer.
TEST(EngineLoopPassingTest, WhoIsPassedStartsWithinTheStatedDelayHoweverLongTheOthersAre) {
  for (const bool other_tenant : {false, true}) {
    for (const int32_t own_tokens : {150, 620, 1490}) {
      const int64_t delay = StepOfPassed(own_tokens, /*may_pass=*/true, other_tenant) -
                            StepOfPassed(own_tokens, /*may_pass=*/false, other_tenant);
      EXPECT_GT(delay, 0) << own_tokens;
      EXPECT_LE(delay, kDelaySteps) << own_tokens << " other tenant " << other_tenant;
    }
  }
}

// All five have started, in two steps, when the one that is passed does.
TEST(EngineLoopPassingTest, ThoseOfFewTokensAllPass) {
  PassingLoop h;
  h.Submit(kPrefixTokens, 1, 500);
  h.Turns(kPrefixTokens / kBudget + 5);
  h.Submit(0, 300, 1);
  h.Turns(4);
  h.Submit(0, kPassedTokens, 1);
  for (int i = 0; i < 5; ++i) h.Submit(kPrefixTokens, 6 + i, 20);
  h.Finish();
  for (int i = 0; i < 5; ++i) {
    EXPECT_LT(h.planner.started(kPrefixTokens + 6 + i), h.planner.started(kPassedTokens));
  }
  EXPECT_LE(h.planner.started(kPassedTokens) - h.planner.started(kPrefixTokens + 6), 2);
}

// The prefix is still being computed, and its last step leaves no rows: the five are held, then
// they pass.
TEST(EngineLoopPassingTest, ThoseThatWereHeldPassWithinTheStatedDelay) {
  constexpr int32_t kWholeStepsTokens = 47 * kBudget;
  const auto step = [](bool may_pass) {
    PassingLoop h(may_pass);
    h.Submit(kWholeStepsTokens - 1, 1, 500);
    h.Turns(kWholeStepsTokens / kBudget - 5);
    h.Submit(0, kPassedTokens, 1);
    for (int i = 0; i < 5; ++i) h.Submit(kWholeStepsTokens - 1, 620 + i, 20);
    h.Finish();
    return h.planner.started(kPassedTokens);
  };
  const int64_t delay = step(true) - step(false);
  EXPECT_GT(delay, 0);
  EXPECT_LE(delay, kDelaySteps);
}

// By a planner that does not heed `held`, as Plan does not where that is not known yet: all rows go
// to one that waits for what the only running one computes. That is no deadlock, and nobody fails.
TEST(EngineLoopPassingTest, APlanForOneThatTurnsOutToBeHeldFailsNobody) {
  int old_plans = 0;
  LoopHarness harness({.num_chunks = 100,
                       .max_sequences = 4,
                       .step_token_budget = kBudget,
                       .planner = [&](const SchedulerSnapshot& snapshot) {
                         if (snapshot.waiting.empty() || old_plans == 5) return Plan(snapshot);
                         ++old_plans;
                         const SequenceId id = snapshot.waiting.front().sequence;
                         return StepPlan{.preempt = {}, .admit = {id}, .work = {{id, kBudget}}};
                       }});
  const auto first = harness.Submit(TokenRequest(Prompt(200, 1), 3));
  old_plans = 5;
  harness.loop.Turn();
  old_plans = 0;
  const auto second = harness.Submit(TokenRequest(Prompt(200, 1), 3));
  harness.RunUntilIdle();
  EXPECT_EQ(old_plans, 5);
  EXPECT_EQ(harness.loop.stats().preemptions_total, 0);
  for (const auto& stream : {first, second}) EXPECT_TRUE(harness.Read(stream).status.ok());
  harness.CheckIdle();
}

// While one is held, a younger one's long prompt gets the rows that are left. That one does not
// keep them from it beyond the delay: not a step, where it is over by then.
TEST(EngineLoopPassingTest, WhoWasHeldWaitsForNoYoungerPromptBeyondTheStatedDelay) {
  constexpr int32_t kOwnTokens = 90, kLongTokens = 2000;
  for (const int32_t prefix_tokens : {11 * 16, 101 * 16}) {
    PassingLoop h;
    h.Submit(prefix_tokens, 1, 100);
    h.Turns(1);
    h.Submit(prefix_tokens, kOwnTokens, 1);
    h.Submit(0, kLongTokens, 1);
    h.Finish();
    const int32_t held = prefix_tokens + kOwnTokens;
    EXPECT_LE(h.planner.started(kLongTokens), h.planner.held_until(held) + 1);
    EXPECT_LE(h.planner.started(held),
              std::max<int64_t>(h.planner.held_until(held), kDelaySteps) + 2);
  }
}

// Two plans, one after the other, each of which takes one away and gives nobody rows: whoever is
// left has what those had.
TEST(EngineLoopPassingTest, PlansThatOnlyPreemptFailNobody) {
  int takes_away = 0;
  LoopHarness harness({.num_chunks = 100,
                       .max_sequences = 4,
                       .step_token_budget = kBudget,
                       .planner = [&](const SchedulerSnapshot& snapshot) {
                         if (takes_away == 0) return Plan(snapshot);
                         --takes_away;
                         const SequenceId id = snapshot.running.back().sequence;
                         return StepPlan{.preempt = {id}, .admit = {}, .work = {}};
                       }});
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int32_t first = 1; first <= 3; ++first) {
    streams.push_back(harness.Submit(TokenRequest(Prompt(5, first), 40)));
  }
  harness.loop.Turn();
  takes_away = 2;
  harness.RunUntilIdle();
  EXPECT_EQ(harness.loop.stats().preemptions_total, 2);
  for (const auto& stream : streams) EXPECT_TRUE(harness.Read(stream).status.ok());
  harness.CheckIdle();
}

// One passes an older one, and computes what that one shares with it. A third, of an age between
// them, does not come before that when its own delay is over: the oldest would wait for both.
TEST(EngineLoopPassingTest, WhoComputesWhatAnOlderOneWaitsForIsAsOldAsThat) {
  PassingLoop h;
  const auto submit = [&h](int32_t second_tokens, int32_t own_tokens, int32_t max_tokens) {
    h.Submit(400 + second_tokens, own_tokens, max_tokens);
  };
  submit(0, 1, 300);
  h.Turns(18);
  h.Submit(0, 27 * kBudget, 1);
  h.Turns(1);
  submit(320, 200, 1);  // less than half of it is found in the cache
  h.Submit(0, kPassedTokens, 1);
  submit(320, 10, 1);
  h.Finish();
  const int64_t last_held = h.planner.held_until(920);
  EXPECT_LT(h.planner.started(730), last_held - 5);
  EXPECT_EQ(h.planner.started(920), last_held + 1);
  EXPECT_GE(h.planner.started(kPassedTokens), last_held) << "what is left in this step";
}

}  // namespace
}  // namespace refrain::engine
