// Steps that fail, and what was launched behind them.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/evict_all.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::FakeKvCell;
using ::refrain::testing::HashLogits;
using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

class EngineLoopFailuresTest : public ::testing::TestWithParam<int> {
 protected:
  LoopOptions Options() const {
    LoopOptions options;
    options.max_in_flight = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineLoopFailuresTest, ::testing::Values(1, 2));

TEST_P(EngineLoopFailuresTest, AFailedStepEndsItsRequestsAndTheLoopGoesOn) {
  LoopHarness h(Options());
  h.runner.FailStep(5, absl::UnavailableError("a copy was lost"));
  const RequestOutput output = h.Run(TokenRequest(Prompt(9), 50));
  EXPECT_EQ(output.status, absl::UnavailableError("a copy was lost"));
  EXPECT_EQ(output.choices.at(0).ends[0].reason, FinishReason::kError);
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  EXPECT_EQ(h.Run(TokenRequest(Prompt(9), 50)).status, absl::OkStatus());
  h.CheckIdle();
}

// A model whose numbers grew too large for their type: no token would be a right one.
TEST_P(EngineLoopFailuresTest, ARequestWithoutFiniteLogitsFailsAlone) {
  LoopHarness h(Options()), undisturbed(Options());
  h.runner.set_logits([](const std::vector<FakeKvCell>& history) {
    std::vector<float> logits = HashLogits(history, 25);
    const bool overflows = history.front().token == Prompt(9)[0] && history.size() == 12;
    if (overflows) logits.assign(25, std::numeric_limits<float>::quiet_NaN());
    return logits;
  });
  ASSERT_NE(Prompt(9)[0], Prompt(20, 3)[0]);
  Request failing = TokenRequest(Prompt(9), 50);
  failing.n = 2;
  failing.sampling.temperature = 1;
  failing.logprobs = {.top = 1};
  const auto streamed = h.Submit(failing);
  const auto other = h.Submit(TokenRequest(Prompt(20, 3), 20));
  h.RunUntilIdle();
  const RequestOutput output = h.Read(streamed);
  EXPECT_EQ(output.status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(output.status.message().find("behind 12 tokens"), std::string::npos) << output.status;
  EXPECT_EQ(output.choices.at(0).tokens.size(), 3u);
  EXPECT_EQ(h.loop.stats().corrupted_requests_total, 1);
  EXPECT_EQ(h.Read(other).choices[0].tokens,
            undisturbed.Run(TokenRequest(Prompt(20, 3), 20)).choices[0].tokens);
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  // K and V that may be the cause are not used again, others are.
  EXPECT_EQ(h.Run(TokenRequest(Prompt(9), 1)).usage.cached_tokens, 0);
  EXPECT_EQ(h.Run(TokenRequest(Prompt(20, 3), 1)).usage.cached_tokens, 19);
  h.CheckIdle();
}

// The same where a prompt's log-probabilities are asked for: none of them would be a right one.
TEST_P(EngineLoopFailuresTest, APromptWithoutFiniteLogitsIsNotScored) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int32_t max_tokens : {0, 2}) {
      for (const bool beams : {false, true}) {
        LoopHarness h(Options());
        h.runner.set_logits([value](const std::vector<FakeKvCell>& history) {
          std::vector<float> logits = HashLogits(history, 25);
          if (history.size() >= 35 && history.size() < 40) logits.assign(25, value);
          return logits;
        });
        Request request = TokenRequest(Prompt(40), max_tokens);
        request.logprobs = {.top = 1, .prompt_top = 1};
        request.n = 2;
        if (beams) {
          request.beam.emplace();
        } else {
          request.echo = true;
        }
        const RequestOutput output = h.Run(request);
        EXPECT_EQ(output.status.code(), absl::StatusCode::kInternal);
        EXPECT_NE(output.status.message().find("behind 35 tokens"), std::string::npos)
            << output.status;
        EXPECT_EQ(output.choices.at(0).prompt.size(), 35u);
        EXPECT_EQ(h.loop.stats().corrupted_requests_total, 1);
        EXPECT_EQ(h.cache->stats().cached_chunks, 0);
        h.CheckIdle();
      }
    }
  }
}

// A token that is allowed has a number, its log-probability among the others has not: the best
// could not be told.
TEST_P(EngineLoopFailuresTest, ATokenWithoutAProbabilityFailsItsRequest) {
  LoopHarness h(Options());
  h.runner.set_logits([](const std::vector<FakeKvCell>& history) {
    std::vector<float> logits = HashLogits(history, 25);
    if (history.size() >= 12) logits[7] = std::numeric_limits<float>::infinity();
    return logits;
  });
  Request request = TokenRequest(Prompt(9), 50);
  request.sampling.allowed_tokens = std::vector<TokenId>{TokenId{3}, TokenId{4}};
  request.best_of = 3;
  EXPECT_EQ(h.Run(request).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(h.loop.stats().corrupted_requests_total, 1);
  EXPECT_EQ(h.cache->stats().cached_chunks, 0);
  h.CheckIdle();
}

// What was launched behind it fails with it: who is only there runs again, and so does what comes.
TEST_P(EngineLoopFailuresTest, AFailedStepDoesNotDrawOthersAlong) {
  LoopHarness h(Options());
  LoopHarness undisturbed(Options());
  const auto failing = h.Submit(TokenRequest(Prompt(9), 50));
  h.runner.FailStep(6, absl::UnavailableError("a copy was lost"));
  while (h.runner.launched() < 6) h.loop.Turn();
  const auto behind = h.Submit(TokenRequest(Prompt(20, 3), 20));
  h.loop.Turn();
  const auto later = h.Submit(TokenRequest(Prompt(25, 5), 20));
  h.RunUntilIdle();
  EXPECT_EQ(h.Read(failing).status, absl::UnavailableError("a copy was lost"));
  EXPECT_EQ(h.Read(behind).choices[0].tokens,
            undisturbed.Run(TokenRequest(Prompt(20, 3), 20)).choices[0].tokens);
  EXPECT_EQ(h.Read(later).choices[0].tokens,
            undisturbed.Run(TokenRequest(Prompt(25, 5), 20)).choices[0].tokens);
  h.CheckIdle();
}

// Prefills and decodes, samples and prompt log-probabilities, all with steps lost in between.
TEST_P(EngineLoopFailuresTest, StepsWithoutMemoryRunAgainAsSmallerOnesAndNothingShows) {
  for (const uint64_t failing : {1u, 2u, 3u, 6u, 12u}) {
    LoopHarness h(Options());
    LoopHarness undisturbed(Options());
    std::vector<int32_t> rows;
    h.runner.before_step = [&rows](const StepBatch& batch) {
      rows.push_back(static_cast<int32_t>(batch.tokens.size()));
    };
    for (const uint64_t step : {failing, failing + 1}) {
      h.runner.FailStep(step, absl::ResourceExhaustedError("scratch memory is gone"));
    }
    std::vector<Request> requests;
    for (int32_t i = 0; i < 5; ++i) {
      requests.push_back(TokenRequest(Prompt(30 + i, i), 40));
      requests.back().sampling.temperature = i % 2;
      requests.back().sampling.seed = 3;
      if (i == 2) requests.back().logprobs = {.top = 1, .prompt_top = 1};
      if (i == 3) requests.back().n = 3;
    }
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (const Request& request : requests) streams.push_back(h.Submit(request));
    h.RunUntilIdle();
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestOutput got = h.Read(streams[i]), expected = undisturbed.Run(requests[i]);
      EXPECT_EQ(got.status, absl::OkStatus());
      for (const auto& [choice, output] : expected.choices) {
        EXPECT_EQ(got.choices.at(choice).tokens, output.tokens) << failing << " " << i;
        EXPECT_EQ(got.choices.at(choice).prompt.size(), output.prompt.size());
      }
    }
    // Of two in flight the second fails with the first.
    EXPECT_EQ(h.loop.stats().steps_without_memory_total, 3 - GetParam());
    if (failing == 1) {
      EXPECT_LE(*std::max_element(rows.begin(), rows.end()), h.options.step_token_budget / 2);
    }
    EXPECT_EQ(h.loop.health(), absl::OkStatus());
    h.CheckIdle();
  }
}

// What was found when it started is not its own to pay for, though it has gone meanwhile.
TEST_P(EngineLoopFailuresTest, WhatIsEvictedBehindALostStepIsNotCountedAsComputed) {
  LoopHarness h(Options());
  h.Run(TokenRequest(Prompt(40), 1));
  h.runner.FailStep(h.runner.launched() + 1, absl::ResourceExhaustedError("once"));
  const auto stream = h.Submit(TokenRequest(Prompt(60), 3));
  while (h.loop.stats().steps_without_memory_total == 0) h.loop.Turn();
  EXPECT_GT(testing::EvictAll(h.cache.get()), 0);
  h.RunUntilIdle();
  const Usage usage = h.Read(stream).usage;
  EXPECT_EQ(usage.cached_tokens, 40);
  EXPECT_EQ(usage.computed_tokens, 60 - 40 + 3);
  h.CheckIdle();
}

// A step of one token is the smallest: its request ends.
TEST_P(EngineLoopFailuresTest, WhereTheSmallestStepHasNoMemoryItsRequestEndsAndTheLoopGoesOn) {
  LoopHarness h(Options());
  const absl::Status lost = absl::ResourceExhaustedError("scratch memory is gone");
  for (uint64_t step = 5; step < 8; ++step) h.runner.FailStep(step, lost);
  EXPECT_EQ(h.Run(TokenRequest(Prompt(9), 50)).status, lost);
  EXPECT_EQ(h.Run(TokenRequest(Prompt(9, 7), 50)).status, absl::OkStatus());
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  h.CheckIdle();
}

TEST_P(EngineLoopFailuresTest, AnInternalErrorKillsTheEngine) {
  LoopHarness h(Options());
  h.runner.FailStep(5, absl::InternalError("device lost"));
  const auto a = h.Submit(TokenRequest(Prompt(9), 50));
  const auto b = h.Submit(TokenRequest(Prompt(200, 2), 50));
  h.RunUntilIdle();
  EXPECT_EQ(h.Read(a).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(h.Read(b).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(h.loop.health(), absl::InternalError("device lost"));
  EXPECT_EQ(h.Submit(TokenRequest(Prompt(9), 50)), nullptr);
  EXPECT_EQ(h.submit_status().code(), absl::StatusCode::kUnavailable);
  h.CheckIdle();
}

TEST_P(EngineLoopFailuresTest, FailedChunkCopyKillsTheEngine) {
  LoopHarness h(Options());
  h.memory.fail_next_copy = true;
  Request request = TokenRequest(Prompt(9), 5);
  request.n = 2;
  EXPECT_EQ(h.Run(request).status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(h.loop.health().ok());
  h.CheckIdle();
}

// Where nothing that is planned fits, who gives way is whom the policy would take, not the
// youngest.
TEST_P(EngineLoopFailuresTest, AStepThatFitsNowhereTakesFromTheLeastUrgent) {
  LoopOptions options = Options();
  options.num_chunks = 13;  // two have room to their ends, three have not
  options.policy = Policy::kPriority;
  std::set<SequenceId> ran, gave_way;
  options.planner = [&](const SchedulerSnapshot& snapshot) {
    // It never preempts, and gives every sequence all the rows it could use.
    StepPlan plan;
    for (const RunningEntry& entry : snapshot.running) {
      ran.insert(entry.sequence);
      if (entry.runnable_tokens > 0) plan.work.push_back({entry.sequence, entry.runnable_tokens});
    }
    int32_t free_chunks = snapshot.free_chunks - static_cast<int32_t>(snapshot.running.size());
    for (const WaitingEntry& entry : snapshot.waiting) {
      if (ran.contains(entry.sequence)) gave_way.insert(entry.sequence);
      const int32_t chunks = entry.prefill_tokens / snapshot.limits.chunk_tokens + 1;
      if (chunks > free_chunks) continue;
      free_chunks -= chunks;
      plan.admit.push_back(entry.sequence);
      plan.work.push_back({entry.sequence, entry.prefill_tokens - entry.shared_tokens});
    }
    return plan;
  };
  LoopHarness h(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const int32_t priority : {9, 0, 0}) {
    Request request = TokenRequest(Prompt(40, static_cast<int32_t>(streams.size())), 50);
    request.priority = priority;
    streams.push_back(h.Submit(request));
  }
  h.RunUntilIdle();
  for (const auto& stream : streams) EXPECT_EQ(h.Read(stream).usage.completion_tokens, 50);
  ASSERT_EQ(ran.size(), 3u);
  EXPECT_EQ(gave_way, std::set<SequenceId>{*ran.begin()});
  h.CheckIdle();
}

}  // namespace
}  // namespace refrain::engine
