// What an EngineObserver is told, over fakes: every step takes 100 ms of the fake clock, nothing
// else takes any time.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_observer.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

constexpr double kStepSeconds = 0.1;

class Recorder final : public EngineObserver {
 public:
  struct Start {
    double queue_s;
    int32_t prompt_tokens;
    int32_t cached_tokens;
  };

  void OnStep(const StepObservation& step) override { steps.push_back(step); }
  void OnArrival(int32_t prompt_tokens) override { arrivals.push_back(prompt_tokens); }
  void OnFirstScheduled(double queue_s, int32_t prompt_tokens, int32_t cached_tokens) override {
    starts.push_back({queue_s, prompt_tokens, cached_tokens});
  }
  void OnFirstToken(double seconds, int32_t prompt_tokens, int32_t cached_tokens) override {
    EXPECT_EQ(prompt_tokens, starts.back().prompt_tokens);
    EXPECT_EQ(cached_tokens, starts.back().cached_tokens);
    first_tokens.push_back(seconds);
  }
  void OnFurtherFirstToken(double seconds) override { further_first_tokens.push_back(seconds); }
  void OnTokenGap(double seconds) override { gaps.push_back(seconds); }
  void OnTokens(int32_t count) override { tokens += count; }
  void OnRequestEnd(const RequestObservation& request) override {
    tenants.emplace_back(request.tenant);
    ends.push_back(request);
    choices.assign(request.choices.begin(), request.choices.end());
  }

  std::vector<StepObservation> steps;
  std::vector<int32_t> arrivals;
  std::vector<Start> starts;
  std::vector<double> first_tokens;
  std::vector<double> gaps;
  int32_t tokens = 0;
  std::vector<std::string> tenants;
  std::vector<double> further_first_tokens;
  std::vector<ChoiceObservation> choices;  // of the last request that ended
  std::vector<RequestObservation> ends;    // their tenants are gone
};

class LoopObserverTest : public ::testing::Test {
 protected:
  LoopHarness& Make(LoopOptions options = {}) {
    options.observer = &seen_;
    harness_ = std::make_unique<LoopHarness>(options);
    harness_->runner.before_step = [this](const StepBatch&) {
      harness_->clock.Advance(std::chrono::duration<double>(kStepSeconds));
    };
    return *harness_;
  }

  static std::vector<int32_t> Prompt(int32_t length, int32_t seed = 1) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < length; ++i) ids.push_back((seed * 7 + i * i * 5 + i * seed) % 24);
    return ids;
  }

  Recorder seen_;
  std::unique_ptr<LoopHarness> harness_;
};

// A prompt of 50 takes two steps of 32 rows at most, then three tokens come one by one.
TEST_F(LoopObserverTest, TellsTheTimesOfOneRequest) {
  LoopHarness& h = Make();
  Request request = TokenRequest(Prompt(50), 3);
  request.tenant = "team-a";
  h.Run(std::move(request));
  EXPECT_EQ(seen_.arrivals, std::vector<int32_t>{50});
  ASSERT_EQ(seen_.starts.size(), 1u);
  EXPECT_EQ(seen_.starts[0].queue_s, 0);
  EXPECT_EQ(seen_.starts[0].prompt_tokens, 50);
  EXPECT_EQ(seen_.starts[0].cached_tokens, 0);
  ASSERT_EQ(seen_.first_tokens.size(), 1u);
  EXPECT_NEAR(seen_.first_tokens[0], 2 * kStepSeconds, 1e-6);
  ASSERT_EQ(seen_.gaps.size(), 2u);
  for (const double gap : seen_.gaps) EXPECT_NEAR(gap, kStepSeconds, 1e-6);
  EXPECT_EQ(seen_.tokens, 3);

  ASSERT_EQ(seen_.ends.size(), 1u);
  const RequestObservation& end = seen_.ends[0];
  EXPECT_EQ(seen_.tenants[0], "team-a");
  EXPECT_EQ(end.status, absl::StatusCode::kOk);
  EXPECT_EQ(end.prompt_tokens, 50);
  EXPECT_EQ(end.generated_tokens, 3);
  EXPECT_EQ(end.most_choice_tokens, 3);
  EXPECT_EQ(end.max_tokens, 3);
  EXPECT_TRUE(end.prompt_done);
  EXPECT_EQ(end.ended(FinishReason::kLength), 1);
  EXPECT_EQ(end.ended(FinishReason::kStop), 0);
  EXPECT_EQ(end.queue_s, 0);
  EXPECT_NEAR(*end.first_token_s, 2 * kStepSeconds, 1e-6);
  EXPECT_NEAR(*end.prefill_s, 2 * kStepSeconds, 1e-6);
  EXPECT_NEAR(*end.decode_s, 2 * kStepSeconds, 1e-6);
  EXPECT_NEAR(end.total_s, 4 * kStepSeconds, 1e-6);
}

TEST_F(LoopObserverTest, TellsWhatEachStepComputed) {
  LoopHarness& h = Make();
  h.Run(TokenRequest(Prompt(50), 3));
  ASSERT_EQ(seen_.steps.size(), 4u);
  const int32_t kRows[][2] = {{32, 0}, {18, 0}, {0, 1}, {0, 1}};  // prefill, decode
  const int64_t kKeys[] = {0, 0, 51, 52};
  for (size_t i = 0; i < 4; ++i) {
    const StepObservation& step = seen_.steps[i];
    EXPECT_EQ(step.prefill_rows, kRows[i][0]) << i;
    EXPECT_EQ(step.decode_rows, kRows[i][1]) << i;
    EXPECT_EQ(step.sequences, 1);
    EXPECT_EQ(step.decode_keys, kKeys[i]) << i;
    EXPECT_EQ(step.shared_decode_keys, 0) << "nothing is shared";
    EXPECT_NEAR(step.model_seconds, kStepSeconds, 1e-6);
    EXPECT_NEAR(step.turn_seconds, kStepSeconds, 1e-6);
    EXPECT_NEAR(step.scheduling_seconds, 0, 1e-6);
    EXPECT_EQ(step.plan_seconds, 0);
  }
}

TEST_F(LoopObserverTest, PlanningIsWhatTheLaunchWaitsFor) {
  LoopOptions options;
  options.planner = [this](const SchedulerSnapshot& snapshot) {
    harness_->clock.Advance(std::chrono::milliseconds(3));
    return Plan(snapshot);
  };
  LoopHarness& h = Make(options);
  h.Run(TokenRequest(Prompt(50), 3));
  ASSERT_EQ(seen_.steps.size(), 4u);
  for (const StepObservation& step : seen_.steps) {
    EXPECT_NEAR(step.plan_seconds, 0.003, 1e-9);
    EXPECT_NEAR(step.planning_seconds, 0.003, 1e-9);
    EXPECT_NEAR(step.scheduling_seconds, 0.003, 1e-9);
    EXPECT_NEAR(step.model_seconds, kStepSeconds, 1e-6);
  }
}

// Two choices read the 40 tokens of their prompt together but for the last one, which each has
// computed, and their own answers alone.
TEST_F(LoopObserverTest, CountsKeysThatSequencesReadTogether) {
  LoopHarness& h = Make();
  Request request = TokenRequest(Prompt(40), 4);
  request.n = 2;
  h.Run(std::move(request));
  const StepObservation& last = seen_.steps.back();
  int64_t most = 0;
  for (const StepObservation& step : seen_.steps) {
    EXPECT_LE(step.shared_decode_keys, step.decode_keys);
    EXPECT_LE(step.shared_decode_keys, 2 * 40);
    most = std::max(most, step.shared_decode_keys);
  }
  EXPECT_GE(most, 2 * 32) << "two whole chunks of 16 are read together";
  EXPECT_LE(last.decode_keys, 2 * 44);
  EXPECT_EQ(seen_.tokens, 8);
  ASSERT_EQ(seen_.ends.size(), 1u);
  EXPECT_EQ(seen_.ends[0].n, 2);
  EXPECT_EQ(seen_.ends[0].generated_tokens, 8);
  EXPECT_EQ(seen_.ends[0].most_choice_tokens, 4);
  EXPECT_EQ(seen_.ends[0].ended(FinishReason::kLength), 2);
  EXPECT_EQ(seen_.gaps.size(), 6u) << "three of each choice";
}

TEST_F(LoopObserverTest, TellsTheTimesOfEachChoice) {
  LoopHarness& h = Make();
  Request request = TokenRequest(Prompt(10), 4);
  request.n = 2;
  h.Run(std::move(request));
  EXPECT_EQ(seen_.first_tokens.size(), 1u);
  EXPECT_EQ(seen_.further_first_tokens.size(), 1u);
  ASSERT_EQ(seen_.choices.size(), 2u);
  double last = 0;
  for (const ChoiceObservation& choice : seen_.choices) {
    EXPECT_EQ(choice.tokens, 4);
    ASSERT_TRUE(choice.first_token_s && choice.prefill_s && choice.decode_s);
    EXPECT_NEAR(*choice.decode_s, 3 * kStepSeconds, 1e-6);
    EXPECT_NEAR(choice.total_s, *choice.first_token_s + *choice.decode_s, 1e-6);
    last = std::max(last, choice.total_s);
  }
  EXPECT_NEAR(last, seen_.ends[0].total_s, 1e-6);
  EXPECT_NEAR(seen_.further_first_tokens[0],
              std::max(*seen_.choices[0].first_token_s, *seen_.choices[1].first_token_s), 1e-6);
}

TEST_F(LoopObserverTest, TellsOfOneChoiceWithTheRequest) {
  LoopHarness& h = Make();
  h.Run(TokenRequest(Prompt(10), 3));
  EXPECT_TRUE(seen_.choices.empty());
  EXPECT_TRUE(seen_.further_first_tokens.empty());
}

TEST_F(LoopObserverTest, TellsHowLongARequestWaited) {
  LoopHarness& h = Make({.max_sequences = 1});
  const auto first = h.Submit(TokenRequest(Prompt(10, 1), 5));
  const auto second = h.Submit(TokenRequest(Prompt(10, 2), 5));
  h.RunUntilIdle();
  ASSERT_EQ(seen_.starts.size(), 2u);
  EXPECT_EQ(seen_.starts[0].queue_s, 0);
  EXPECT_NEAR(seen_.starts[1].queue_s, 5 * kStepSeconds, 1e-6);
  ASSERT_EQ(seen_.ends.size(), 2u);
  EXPECT_NEAR(*seen_.ends[1].queue_s, 5 * kStepSeconds, 1e-6);
  EXPECT_NEAR(*seen_.ends[1].prefill_s, kStepSeconds, 1e-6);
  EXPECT_NEAR(*seen_.ends[1].first_token_s, 6 * kStepSeconds, 1e-6);
  EXPECT_NEAR(seen_.ends[1].total_s, 10 * kStepSeconds, 1e-6);
}

TEST_F(LoopObserverTest, CountsTimeBeforeTheEngineThread) {
  LoopHarness& h = Make();
  const auto stream = h.Submit(TokenRequest(Prompt(10), 1));
  h.clock.Advance(std::chrono::duration<double>(2.0));
  h.RunUntilIdle();
  ASSERT_EQ(seen_.ends.size(), 1u);
  EXPECT_NEAR(seen_.ends[0].encode_s, 2.0, 1e-6);
  EXPECT_EQ(seen_.ends[0].queue_s, 0);
  EXPECT_NEAR(*seen_.ends[0].first_token_s, 2.0 + kStepSeconds, 1e-6);
}

TEST_F(LoopObserverTest, TellsCachedTokens) {
  LoopHarness& h = Make();
  h.Run(TokenRequest(Prompt(50), 1));
  const RequestOutput output = h.Run(TokenRequest(Prompt(50), 1));
  ASSERT_GT(output.usage.cached_tokens, 0);
  EXPECT_EQ(seen_.starts.at(1).cached_tokens, output.usage.cached_tokens);
  EXPECT_EQ(seen_.ends.at(1).cached_tokens, output.usage.cached_tokens);
}

TEST_F(LoopObserverTest, TellsOfRequestsThatNeverRan) {
  LoopHarness& h = Make({.max_sequences = 1});
  const auto first = h.Submit(TokenRequest(Prompt(10, 1), 5));
  const auto second = h.Submit(TokenRequest(Prompt(10, 2), 5));
  h.loop.Turn();
  second->Cancel();
  h.RunUntilIdle();
  ASSERT_EQ(seen_.ends.size(), 2u);
  const RequestObservation& end = seen_.ends[0];
  EXPECT_EQ(end.status, absl::StatusCode::kCancelled);
  EXPECT_EQ(end.ended(FinishReason::kCancelled), 1);
  EXPECT_FALSE(end.prompt_done);
  EXPECT_FALSE(end.queue_s.has_value());
  EXPECT_FALSE(end.first_token_s.has_value());
  EXPECT_FALSE(end.decode_s.has_value());
  // Its end is sent with what the turn that saw it brings.
  EXPECT_NEAR(end.total_s, 2 * kStepSeconds, 1e-6);
}

TEST_F(LoopObserverTest, TellsOfFailedSteps) {
  LoopHarness& h = Make();
  h.runner.FailStep(2, absl::UnavailableError("not now"));
  h.Run(TokenRequest(Prompt(10), 5));
  ASSERT_EQ(seen_.ends.size(), 1u);
  EXPECT_EQ(seen_.ends[0].status, absl::StatusCode::kUnavailable);
  EXPECT_EQ(seen_.ends[0].ended(FinishReason::kError), 1);
  EXPECT_EQ(seen_.ends[0].generated_tokens, 1);
}

TEST_F(LoopObserverTest, TellsOfPromptsAlone) {
  LoopHarness& h = Make();
  h.Run(TokenRequest(Prompt(10), 0));
  ASSERT_EQ(seen_.ends.size(), 1u);
  EXPECT_TRUE(seen_.ends[0].prompt_done);
  EXPECT_FALSE(seen_.ends[0].first_token_s.has_value());
  EXPECT_EQ(seen_.ends[0].generated_tokens, 0);
}

// Beams come and go; the request's tokens and times are those of the search.
TEST_F(LoopObserverTest, FollowsBeamSearch) {
  LoopHarness& h = Make();
  Request request = TokenRequest(Prompt(10), 4);
  request.sampling.temperature = 0;
  request.best_of = 3;
  request.beam.emplace();
  h.Run(std::move(request));
  ASSERT_EQ(seen_.ends.size(), 1u);
  EXPECT_EQ(seen_.ends[0].status, absl::StatusCode::kOk);
  EXPECT_EQ(seen_.ends[0].most_choice_tokens, 4);
  EXPECT_EQ(seen_.gaps.size(), 3u);
  EXPECT_EQ(seen_.first_tokens.size(), 1u);
}

// An echoed prompt was sampled by nobody, and the step that was collected last may be hours ago.
TEST_F(LoopObserverTest, AnEchoedPromptHasNoTime) {
  for (const int steps_in_flight : {1, 2}) {
    LoopHarness& h = Make({.max_in_flight = steps_in_flight});
    h.Run(TokenRequest(Prompt(9), 2));
    h.clock.Advance(std::chrono::hours(1));
    const auto begin = h.clock.Now();
    Request request = TokenRequest(Prompt(50, 3), 2);
    request.echo = true;
    const auto stream = h.Submit(std::move(request));
    h.loop.Turn();
    const StreamBatch echo = stream->Read();
    EXPECT_EQ(echo.tokens.size(), 50u);
    EXPECT_FALSE(echo.first_sampled.has_value());
    h.RunUntilIdle();
    const StreamBatch answer = stream->Read();
    ASSERT_TRUE(answer.first_sampled.has_value());
    EXPECT_GE(*answer.first_sampled - begin, std::chrono::duration<double>(1.9 * kStepSeconds));
  }
}

// With two steps in flight the tokens are the same; only their times move.
TEST_F(LoopObserverTest, CountsTheSameWithTwoStepsInFlight) {
  LoopOptions options;
  options.max_in_flight = 2;
  options.observer = &seen_;
  LoopHarness h(options);
  h.Run(TokenRequest(Prompt(50), 10));
  EXPECT_EQ(seen_.tokens, 10);
  EXPECT_EQ(seen_.gaps.size(), 9u);
  ASSERT_EQ(seen_.ends.size(), 1u);
  EXPECT_EQ(seen_.ends[0].generated_tokens, 10);
}

}  // namespace
}  // namespace refrain::engine
