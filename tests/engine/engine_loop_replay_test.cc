// Prompts whose rows are wanted though they are cached: they are read again, not computed twice.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

// Rows that are computed again are in chunks that are there: they need no free ones.
TEST(EngineLoopReplayTest, RowsOfACachedPromptNeedNoChunks) {
  LoopHarness h({.num_chunks = 3});
  Request request = TokenRequest(Prompt(40), 1);
  h.Run(request);
  request.logprobs.prompt_top = 0;
  const int64_t steps = h.loop.stats().steps_total;
  const RequestOutput again = h.Run(request);
  ASSERT_EQ(again.status, absl::OkStatus());
  EXPECT_EQ(again.usage.cached_tokens, 39);
  EXPECT_EQ(again.choices.at(0).prompt.size(), 40u);
  EXPECT_LE(h.loop.stats().steps_total - steps, 3);  // 32 rows, 7, and the last
  h.CheckIdle();
}

// 39 of 40 tokens are cached, 32 are replayed in the first step: choices that come in the second
// leave the other 7 to the first choice.
TEST(EngineLoopReplayTest, OneChoiceReplaysForAll) {
  LoopHarness h;
  Request request = TokenRequest(Prompt(40), 1);
  h.Run(request);
  request.n = 4;
  request.logprobs.prompt_top = 0;
  const int64_t rows = h.runner.rows();
  const RequestOutput output = h.Run(request);
  ASSERT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.choices.size(), 4u);
  EXPECT_EQ(output.choices.at(0).prompt.size(), 40u);
  EXPECT_EQ(h.runner.rows() - rows, 39 + 4);
  h.CheckIdle();
}

// 320 of 400 tokens are cached. A request computes these again for their log-probabilities, ten
// steps of 32 rows. In the fifth comes another tenant's that lacks the same 80 and has been served
// less: it computes them, in three steps, rather than wait for nine.
TEST(EngineLoopReplayTest, AReplayHoldsUpNobodyWhoLacksWhatComesBehindIt) {
  LoopHarness h;
  h.Run(TokenRequest(Prompt(320), 1));
  Request replaying = TokenRequest(Prompt(400), 1);
  replaying.tenant = "a";
  replaying.logprobs.prompt_top = 0;
  const auto first = h.Submit(replaying);
  for (int i = 0; i < 4; ++i) h.loop.Turn();
  Request plain = TokenRequest(Prompt(400), 1);
  plain.tenant = "b";
  const auto second = h.Submit(plain);
  RequestOutput output;
  int turns = 0;
  for (; turns < 100 && !output.finished; ++turns) {
    h.loop.Turn();
    ReadInto(*second, h.tokenizer, &output);
  }
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_LE(turns, 3 + 1);
  h.RunUntilIdle();
  const RequestOutput replayed = h.Read(first);
  EXPECT_EQ(replayed.status, absl::OkStatus());
  EXPECT_EQ(replayed.choices.at(0).prompt.size(), 400u);
  EXPECT_EQ(replayed.choices.at(0).tokens, output.choices.at(0).tokens);
  h.CheckIdle();
}

// A replay of 32 rows fits into a step: what comes behind it is worth the wait.
TEST(EngineLoopReplayTest, WhatComesBehindAShortReplayIsComputedOnce) {
  LoopHarness h;
  h.Run(TokenRequest(Prompt(32), 1));
  const int64_t before = h.loop.stats().computed_prompt_tokens_total;
  Request replaying = TokenRequest(Prompt(400), 1);
  replaying.logprobs.prompt_top = 0;
  const auto first = h.Submit(replaying);
  const auto second = h.Submit(TokenRequest(Prompt(400), 1));
  h.RunUntilIdle();
  EXPECT_LE(h.loop.stats().computed_prompt_tokens_total - before, 32 + (400 - 32) + 1);
  EXPECT_EQ(h.Read(first).status, absl::OkStatus());
  EXPECT_EQ(h.Read(second).usage.cached_tokens, 399);
  h.CheckIdle();
}

// All chunks hold the prompt, the last one in part: it goes on in that one.
TEST(EngineLoopReplayTest, ACachedPromptGoesOnInAPoolThatItFills) {
  for (const int32_t tokens : {40, 47, 33}) {
    LoopHarness h({.num_chunks = 3});
    const RequestOutput first = h.Run(TokenRequest(Prompt(tokens), 1));
    const RequestOutput again = h.Run(TokenRequest(Prompt(tokens), 1));
    ASSERT_EQ(again.status, absl::OkStatus());
    EXPECT_EQ(again.usage.cached_tokens, tokens - 1);
    EXPECT_EQ(again.choices.at(0).tokens, first.choices.at(0).tokens);
    h.CheckIdle();
  }
}

// The first choice replays all that is left, the second finds nothing left and no chunk for its own
// token; then the step is lost. The second goes on first: the rows that were lost are its own now.
TEST(EngineLoopReplayTest, RowsOfALostStepAreReplayedByWhoLeftThemToIt) {
  LoopOptions options{.num_chunks = 3};
  int plans = 0;
  options.planner = [&](const SchedulerSnapshot& snapshot) {
    StepPlan plan;
    const int32_t rows = ++plans == 1 ? 10 : 40;
    for (const RunningEntry& entry : snapshot.running) plan.work.push_back({entry.sequence, rows});
    if (!snapshot.waiting.empty() && (plans <= 2 || snapshot.running.empty())) {
      plan.admit.push_back(snapshot.waiting.front().sequence);
      plan.work.push_back({snapshot.waiting.front().sequence, rows});
    }
    return plan;
  };
  LoopHarness h(options);
  h.Run(TokenRequest(Prompt(40), 1));
  plans = 0;
  Request request = TokenRequest(Prompt(40), 1);
  request.n = 2;
  request.echo = true;
  request.logprobs.prompt_top = 0;
  h.runner.FailStep(h.runner.launched() + 2, absl::ResourceExhaustedError("once"));
  const RequestOutput output = h.Run(request);
  ASSERT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(h.loop.stats().steps_without_memory_total, 1);
  for (const int32_t choice : {0, 1}) {
    EXPECT_EQ(output.choices.at(choice).prompt.size(), 40u);
    EXPECT_EQ(output.choices.at(choice).tokens.size(), 1u);
  }
  h.CheckIdle();
}

// One that was preempted while it generated has told its prompt's rows already.
TEST(EngineLoopReplayTest, ResumingComputesNothingAgainThatIsCached) {
  LoopHarness h({.num_chunks = 8});
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int32_t i = 0; i < 2; ++i) streams.push_back(h.Submit(TokenRequest({i, 1, 2, 3}, 90)));
  h.RunUntilIdle();
  EXPECT_GT(h.loop.stats().preemptions_total, 0);
  int64_t least_rows = 2 * (4 + 89);
  // What was evicted in between is computed again, and nothing else.
  const int64_t evicted_tokens = h.loop.stats().kv_evicted_chunks_total * 16;
  EXPECT_LE(h.runner.rows(), least_rows + evicted_tokens + 2);
  for (const auto& stream : streams) EXPECT_EQ(h.Read(stream).choices.at(0).tokens.size(), 90u);
  h.CheckIdle();
}

// A prompt adds to the cache what was not found; what is replayed is there already.
TEST(EngineLoopReplayTest, OnlyWhatWasNotFoundIsWrittenToTheCache) {
  LoopHarness h;
  Request request = TokenRequest(Prompt(100), 1);
  EXPECT_EQ(h.Run(request).usage.written_tokens, 100);
  request.logprobs.prompt_top = 0;
  const Usage again = h.Run(request).usage;
  EXPECT_EQ(again.cached_tokens, 99);
  EXPECT_EQ(again.written_tokens, 1);
  LoopHarness uncached({.prefix_cache = false});
  EXPECT_EQ(uncached.Run(request).usage.written_tokens, 0);
}

}  // namespace
}  // namespace refrain::engine
