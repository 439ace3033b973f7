// Nobody waits for ever, also not one that is preempted again and again: a bound on the steps of a
// request of the lowest rank beside better ones that never end.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using testing::LoopHarness;
using testing::RequestOutput;
using testing::TokenRequest;

constexpr int32_t kAgeingSteps = 40;
constexpr int32_t kLowPriority = 9;

// `length` tokens that begin like no other prompt of the test.
std::vector<int32_t> Prompt(int32_t number, int32_t length) {
  std::vector<int32_t> ids = {number % 24, number / 24 % 24, number / 576 % 24};
  while (static_cast<int32_t>(ids.size()) < length) {
    ids.push_back((number + static_cast<int32_t>(ids.size())) % 24);
  }
  return ids;
}

// Plans as the scheduler does, and watches what becomes of the one of low priority.
class WatchingPlanner {
 public:
  StepPlan operator()(const SchedulerSnapshot& snapshot) {
    const StepPlan plan = Plan(snapshot);
    for (const WaitingEntry& entry : snapshot.waiting) {
      if (entry.priority != kLowPriority) continue;
      low_ = entry.sequence;
      since_step_ = entry.since_step;
    }
    if (low_.has_value() && snapshot.step - since_step_ >= kAgeingSteps && Holds(plan, *low_)) {
      for (const RunningEntry& entry : snapshot.running) {
        if (entry.sequence > *low_ && !Holds(plan, entry.sequence)) ++gave_way_;
      }
    }
    return plan;
  }

  // How often, having aged, it was preempted and a younger one was not.
  int gave_way() const { return gave_way_; }

 private:
  static bool Holds(const StepPlan& plan, SequenceId id) {
    return std::count(plan.preempt.begin(), plan.preempt.end(), id) > 0;
  }

  std::optional<SequenceId> low_;
  int64_t since_step_ = 0;
  int gave_way_ = 0;
};

struct Crowd {
  std::string name;
  int32_t prompt_tokens;
  int32_t max_tokens;
  bool grows = true;  // so much that some give way
  Policy policy = Policy::kPriority;
  int32_t common_tokens = 0;  // that its prompts begin with, and so find in the cache
};

std::vector<int32_t> PromptOf(const Crowd& crowd, int32_t number) {
  std::vector<int32_t> ids(static_cast<size_t>(crowd.common_tokens), 23);
  const auto rest = Prompt(number, crowd.prompt_tokens - crowd.common_tokens);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

class EngineLoopAgeingTest : public ::testing::TestWithParam<Crowd> {};

// Fourteen chunks; the crowd's requests, ten at any time, take six chunks each in the end. The one
// of low rank (nothing of its prompt is cached, or its priority is low) takes all fourteen: when it
// has aged it waits for the older ones and those admitted before, two of which fit at a time; then
// it runs to its end, whoever comes.
TEST_P(EngineLoopAgeingTest, ARequestOfLowRankEndsBesideBetterOnesThatNeverStop) {
  const Crowd& crowd = GetParam();
  constexpr int32_t kPromptTokens = 100, kMaxTokens = 110;
  WatchingPlanner planner;
  LoopHarness harness({.num_chunks = 14,
                       .max_sequences = 6,
                       .step_token_budget = 24,
                       .policy = crowd.policy,
                       .ageing_steps = kAgeingSteps,
                       .planner = std::ref(planner)});
  int32_t number = 1;
  std::vector<std::shared_ptr<TokenStream>> others;
  const auto turn = [&] {
    std::erase_if(others, [&](const auto& stream) { return harness.Read(stream).finished; });
    while (others.size() < 10) {
      others.push_back(harness.Submit(TokenRequest(PromptOf(crowd, number++), crowd.max_tokens)));
    }
    harness.loop.Turn();
  };
  for (int i = 0; i < 50; ++i) turn();
  Request low = TokenRequest(Prompt(0, kPromptTokens), kMaxTokens);
  low.priority = kLowPriority;
  const auto stream = harness.Submit(low);
  RequestOutput output;
  int turns = 0;
  for (; turns < 5000 && !output.finished; ++turns) {
    turn();
    ReadInto(*stream, harness.tokenizer, &output);
  }
  EXPECT_TRUE(output.status.ok()) << output.status;
  EXPECT_EQ(output.usage.completion_tokens, kMaxTokens);
  EXPECT_EQ(planner.gave_way(), 0);
  EXPECT_GT(turns, kAgeingSteps) << "the others came first until then";
  EXPECT_EQ(harness.loop.stats().preemptions_total > 0, crowd.grows);
  const int32_t one_of_crowd = crowd.max_tokens + crowd.prompt_tokens / 12 + 1;
  EXPECT_LE(turns, kAgeingSteps + (10 + 6) / 2 * one_of_crowd + kMaxTokens + kPromptTokens / 12);
  others.clear();
  harness.RunUntilIdle();
  harness.CheckIdle();
}

INSTANTIATE_TEST_SUITE_P(
    Crowds, EngineLoopAgeingTest,
    ::testing::Values(Crowd{"GrowsAtOnce", 31, 60}, Crowd{"Decodes", 5, 90},
                      Crowd{"Prefills", 90, 4, false},
                      Crowd{"GrowsAtOnceBehindAPrefix", 31, 60, true, Policy::kLongestPrefix, 17},
                      Crowd{"DecodesBehindAPrefix", 22, 73, true, Policy::kLongestPrefix, 17}),
    [](const auto& info) { return info.param.name; });

// A request that came later, of a better priority, computes the prompt that an older one waits for:
// it has the priority of whoever waits, and comes before all once the older one has aged.
TEST(EngineLoopLendingTest, WhoIsHeldLendsItsPriorityAndItsAge) {
  constexpr int32_t kPromptTokens = 400, kBudget = 8;
  std::vector<RunningEntry> running;
  LoopHarness harness({.max_sequences = kBudget,
                       .step_token_budget = kBudget,
                       .policy = Policy::kPriority,
                       .ageing_steps = kAgeingSteps,
                       .planner = [&running](const SchedulerSnapshot& snapshot) {
                         running = snapshot.running;
                         return Plan(snapshot);
                       }});
  const auto submit = [&](int32_t priority) {
    Request request = TokenRequest(Prompt(0, kPromptTokens), 1);
    request.priority = priority;
    return harness.Submit(request);
  };
  const auto turn_until_step = [&](int64_t step) {
    while (harness.loop.stats().steps_total < step) harness.loop.Turn();
  };
  // The best one takes all rows, until the other two are there.
  const auto best = harness.Submit(TokenRequest(Prompt(1, kBudget * (kAgeingSteps - 10)), 1));
  const auto old = submit(kLowPriority);
  turn_until_step(kAgeingSteps - 10);
  const auto producer = submit(5);
  turn_until_step(kAgeingSteps - 5);
  EXPECT_EQ(harness.loop.held_sequences(), 1u);
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].priority, 5);
  const auto lender = submit(3);
  turn_until_step(kAgeingSteps);
  EXPECT_EQ(harness.loop.held_sequences(), 2u);
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].priority, 3);
  turn_until_step(kAgeingSteps + 1);
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].priority, std::numeric_limits<int64_t>::min());
  harness.RunUntilIdle();
  for (const auto& stream : {best, old, producer, lender}) {
    EXPECT_EQ(harness.Read(stream).usage.completion_tokens, 1);
  }
  harness.CheckIdle();
}

}  // namespace
}  // namespace refrain::engine
