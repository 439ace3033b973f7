#include "engine/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::FakeKvCell;
using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;
using ::testing::HasSubstr;

// A model that says the letters of a text, one token each, whatever came before the prompt's end.
testing::FakeModelRunner::Logits Says(const std::vector<int32_t>& script, int32_t prompt_tokens) {
  return [script, prompt_tokens](const std::vector<FakeKvCell>& history) {
    std::vector<float> logits(testing::LetterVocabulary().size(), 0.0f);
    const size_t said = history.size() - static_cast<size_t>(prompt_tokens);
    logits[static_cast<size_t>(said < script.size() ? script[said] : 15)] = 10.0f;
    return logits;
  };
}

constexpr int32_t kEos = 24;

class EngineLoopTest : public ::testing::TestWithParam<int> {
 protected:
  LoopOptions Options() const {
    LoopOptions options;
    options.max_in_flight = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineLoopTest, ::testing::Values(1, 2));

TEST_P(EngineLoopTest, GeneratesWhatTheModelSaysOneTokenAfterTheOther) {
  LoopHarness h(Options());
  const RequestOutput output = h.Run(TokenRequest(Prompt(50), 40));
  ASSERT_TRUE(output.finished);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.usage.prompt_tokens, 50);
  EXPECT_EQ(output.usage.completion_tokens, 40);
  // The same by hand: no cache, no plan, no batch.
  std::vector<FakeKvCell> history;
  for (const int32_t id : Prompt(50)) history.push_back({id, static_cast<int32_t>(history.size())});
  for (const int32_t token : output.choices.at(0).tokens) {
    const std::vector<float> logits = testing::HashLogits(history, 25);
    ASSERT_EQ(token, static_cast<int32_t>(ArgMax(logits)));
    history.push_back({token, static_cast<int32_t>(history.size())});
  }
  ASSERT_EQ(output.choices.at(0).ends.size(), 1u);
  EXPECT_EQ(output.choices.at(0).ends[0].reason, FinishReason::kLength);
  h.CheckIdle();
}

// The prompt of 100 is computed in pieces of 32 rows.
TEST_P(EngineLoopTest, TellsWhatItHasComputedBeforeThereAreTokens) {
  LoopHarness h(Options());
  const auto stream = h.Submit(TokenRequest(Prompt(100), 3));
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(stream->Read().usage.computed_tokens, GetParam() == 1 ? 96 : 64);
  h.RunUntilIdle();
  EXPECT_EQ(stream->Read().usage.computed_tokens, 100 + 3);
  const Usage again = h.Run(TokenRequest(Prompt(100), 3)).usage;
  EXPECT_EQ(again.computed_tokens, 100 - again.cached_tokens + 3);
  EXPECT_GT(again.cached_tokens, 0);
  Request scored = TokenRequest(Prompt(100), 3);
  scored.logprobs.prompt_top = 0;
  const Usage of_scored = h.Run(std::move(scored)).usage;
  EXPECT_EQ(of_scored.computed_tokens, 100 + 3);
  EXPECT_GT(of_scored.cached_tokens, 0);
}

TEST_P(EngineLoopTest, OneThatWasCancelledBeforeItRanHasComputedNothing) {
  LoopOptions options = Options();
  options.max_sequences = 1;
  LoopHarness h(options);
  const auto running = h.Submit(TokenRequest(Prompt(4), 20));
  const auto waiting = h.Submit(TokenRequest(Prompt(100, 3), 3));
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  waiting->Cancel();
  h.RunUntilIdle();
  EXPECT_EQ(waiting->Read().usage.computed_tokens, 0);
}

TEST_P(EngineLoopTest, TellsWhenTokensWereSampled) {
  LoopHarness h(Options());
  h.runner.before_step = [&](const StepBatch&) { h.clock.Advance(std::chrono::seconds(1)); };
  const auto stream = h.Submit(TokenRequest({1, 2, 3}, 2));
  const auto begin = h.clock.Now();
  h.RunUntilIdle();
  const StreamBatch batch = stream->Read();
  ASSERT_EQ(batch.tokens.size(), 2u);
  ASSERT_TRUE(batch.first_sampled.has_value());
  EXPECT_GE(*batch.first_sampled - begin, std::chrono::seconds(1)) << "when it was computed";
  EXPECT_LE(*batch.first_sampled, h.clock.Now());
}

// The prompt of 100 is computed in pieces of at most 32 rows while another keeps decoding.
TEST_P(EngineLoopTest, LongPromptsAreCutSoThatOthersKeepProducing) {
  LoopHarness h(Options());
  const auto first = h.Submit(TokenRequest(Prompt(4), 200));
  for (int i = 0; i < 10; ++i) h.loop.Turn();
  h.Read(first);
  const auto second = h.Submit(TokenRequest(Prompt(100, 3), 2));
  int turns_without_token = 0;
  for (int i = 0; i < 6; ++i) {
    h.loop.Turn();
    turns_without_token += h.Read(first).choices[0].tokens.empty() ? 1 : 0;
  }
  EXPECT_EQ(turns_without_token, 0);
  h.RunUntilIdle();
  EXPECT_EQ(h.Read(second).choices.at(0).tokens,
            LoopHarness(LoopOptions{}).Run(TokenRequest(Prompt(100, 3), 2)).choices.at(0).tokens);
  h.CheckIdle();
}

TEST_P(EngineLoopTest, ResultsDoNotDependOnWhoElseRuns) {
  LoopHarness h(Options());
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 20; ++i) {
    Request request = TokenRequest(Prompt(3 + i * 5, i), 5 + i);
    request.sampling.temperature = i % 2;
    request.sampling.seed = 5;
    requests.push_back(request);
    streams.push_back(h.Submit(request));
    h.loop.Turn();
  }
  h.RunUntilIdle();
  for (size_t i = 0; i < streams.size(); ++i) {
    LoopHarness alone;
    EXPECT_EQ(h.Read(streams[i]).choices.at(0).tokens, alone.Run(requests[i]).choices.at(0).tokens);
  }
  h.CheckIdle();
}

// Four growing sequences in a pool for less than two: they are preempted, never failed.
TEST_P(EngineLoopTest, PreemptionChangesNoToken) {
  LoopOptions options = Options();
  options.num_chunks = 12;
  LoopHarness h(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    Request request = TokenRequest(Prompt(20, i), 100);
    request.sampling.temperature = 1;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.repetition_penalty = 1.3;
    requests.push_back(request);
    streams.push_back(h.Submit(request));
  }
  h.RunUntilIdle();
  EXPECT_GT(h.loop.stats().preemptions_total, 0);
  for (size_t i = 0; i < streams.size(); ++i) {
    const RequestOutput output = h.Read(streams[i]);
    EXPECT_EQ(output.status, absl::OkStatus());
    LoopHarness alone;
    EXPECT_EQ(output.choices.at(0).tokens, alone.Run(requests[i]).choices.at(0).tokens);
  }
  h.CheckIdle();
}

// A planner that never preempts: every running sequence gets all the rows it could use, whatever
// room there is.
StepPlan PlanWithoutPreemption(const SchedulerSnapshot& snapshot) {
  StepPlan plan;
  for (const RunningEntry& entry : snapshot.running) {
    if (entry.runnable_tokens > 0) plan.work.push_back({entry.sequence, entry.runnable_tokens});
  }
  int32_t free_chunks = snapshot.free_chunks - static_cast<int32_t>(snapshot.running.size());
  for (const WaitingEntry& entry : snapshot.waiting) {
    const int32_t chunks = entry.prefill_tokens / snapshot.limits.chunk_tokens + 1;
    if (entry.held || chunks > free_chunks) continue;
    free_chunks -= chunks;
    plan.admit.push_back(entry.sequence);
    plan.work.push_back({entry.sequence, entry.prefill_tokens - entry.shared_tokens});
  }
  return plan;
}

TEST_P(EngineLoopTest, AStepThatFitsNowhereMakesRoomAndLosesNothing) {
  LoopOptions options = Options();
  options.num_chunks = 12;
  options.planner = &PlanWithoutPreemption;
  LoopHarness h(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int32_t i = 0; i < 4; ++i) streams.push_back(h.Submit(TokenRequest(Prompt(40, i), 100)));
  h.RunUntilIdle();
  EXPECT_GT(h.loop.stats().preemptions_total, 0);
  for (int32_t i = 0; i < 4; ++i) {
    const RequestOutput output = h.Read(streams[static_cast<size_t>(i)]);
    EXPECT_EQ(output.status, absl::OkStatus());
    LoopHarness alone;
    EXPECT_EQ(output.choices.at(0).tokens,
              alone.Run(TokenRequest(Prompt(40, i), 100)).choices.at(0).tokens);
  }
  h.CheckIdle();
}

TEST_P(EngineLoopTest, WhatIsPinnedRefusesRequestsAndTheEngineLives) {
  LoopOptions options = Options();
  options.num_chunks = 8;
  LoopHarness h(options);
  h.Run(TokenRequest(Prompt(16 * 7), 1));
  const std::vector<TokenId> pinned = [] {
    std::vector<TokenId> ids;
    for (const int32_t id : Prompt(16 * 7)) ids.push_back(TokenId{id});
    return ids;
  }();
  const kvcache::TokenSpan span{.ids = pinned, .positions = {}};
  const int32_t pinned_tokens = h.cache->Pin({}, span);
  ASSERT_EQ(pinned_tokens, 16 * 7);
  const RequestOutput refused = h.Run(TokenRequest(Prompt(40, 5), 1));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status)) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("not pinned"));
  EXPECT_EQ(h.Run(TokenRequest(Prompt(10, 5), 3)).status, absl::OkStatus());
  // One that outgrows what is left.
  EXPECT_TRUE(absl::IsFailedPrecondition(h.Run(TokenRequest(Prompt(10, 6), 30)).status));
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  h.cache->Unpin({}, span, pinned_tokens);
  EXPECT_EQ(h.Run(TokenRequest(Prompt(40, 5), 1)).status, absl::OkStatus());
  h.CheckIdle();
}

TEST_P(EngineLoopTest, ChoicesShareTheirPromptAndDiffer) {
  LoopHarness h(Options());
  Request request = TokenRequest(Prompt(100), 10);
  request.sampling.temperature = 1;
  request.sampling.seed = 3;
  request.n = 5;
  const RequestOutput output = h.Run(request);
  ASSERT_EQ(output.choices.size(), 5u);
  std::set<std::vector<int32_t>> different;
  for (const auto& [index, choice] : output.choices) {
    EXPECT_EQ(choice.tokens.size(), 10u);
    EXPECT_EQ(choice.ends.size(), 1u);
    different.insert(choice.tokens);
  }
  EXPECT_EQ(different.size(), 5u);
  EXPECT_EQ(output.usage.completion_tokens, 50);
  EXPECT_EQ(output.usage.prompt_tokens, 100);
  // The prompt once, its last token for each choice.
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 100 + 4);
  EXPECT_EQ(h.memory.copies, 4);
  // Choice 0 is what a request with one choice gets.
  request.n = 1;
  LoopHarness alone;
  EXPECT_EQ(alone.Run(request).choices.at(0).tokens, output.choices.at(0).tokens);
  h.CheckIdle();
}

TEST_P(EngineLoopTest, ChoicesInATinyPoolAreTheSame) {
  LoopOptions options = Options();
  options.num_chunks = 9;
  LoopHarness tiny(options);
  LoopHarness big;
  Request request = TokenRequest(Prompt(33), 60);
  request.sampling.temperature = 1;
  request.sampling.seed = 3;
  request.n = 7;
  const RequestOutput a = tiny.Run(request);
  const RequestOutput b = big.Run(request);
  EXPECT_GT(tiny.loop.stats().preemptions_total, 0);
  for (int32_t i = 0; i < 7; ++i) EXPECT_EQ(a.choices.at(i).tokens, b.choices.at(i).tokens);
  tiny.CheckIdle();
}

TEST_P(EngineLoopTest, SinglePromptTokenWithChoices) {
  LoopHarness h(Options());
  Request request = TokenRequest({3}, 4);
  request.n = 3;
  const RequestOutput output = h.Run(request);
  EXPECT_EQ(output.choices.size(), 3u);
  EXPECT_EQ(output.choices.at(2).tokens.size(), 4u);
  h.CheckIdle();
}

TEST_P(EngineLoopTest, EndTokenEndsWithStop) {
  LoopHarness h(Options());
  h.runner.set_logits(Says({0, 1, kEos, 2}, 5));
  Request request = TokenRequest(Prompt(5), 20);
  request.stop.ignore_eos = false;
  const RequestOutput output = h.Run(request);
  EXPECT_EQ(output.choices.at(0).text, "ab");
  EXPECT_EQ(output.choices.at(0).ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(output.choices.at(0).ends[0].stop_token, TokenId{kEos});
  EXPECT_EQ(output.usage.completion_tokens, 3);  // the token behind it was dropped
  h.CheckIdle();
}

TEST_P(EngineLoopTest, IgnoreEosGoesOn) {
  LoopHarness h(Options());
  h.runner.set_logits(Says({0, kEos, 1, 2}, 5));
  const RequestOutput output = h.Run(TokenRequest(Prompt(5), 4));
  EXPECT_EQ(output.choices.at(0).tokens, (std::vector<int32_t>{0, kEos, 1, 2}));
  h.CheckIdle();
}

// Tokens "ab" "cd" "e": stop at "bcde", of which "a" is shown.
TEST_P(EngineLoopTest, StopStringAcrossTokensIsCutOut) {
  LoopHarness h(Options());
  h.runner.set_logits(Says({9, 16, 18, 4, 5}, 5));
  Request request = TokenRequest(Prompt(5), 20);
  request.stop.stop = {"zz", "bcde"};
  const RequestOutput output = h.Run(request);
  EXPECT_EQ(output.choices.at(0).text, "ja");
  EXPECT_EQ(output.choices.at(0).ends[0].matched_stop, "bcde");
  EXPECT_EQ(output.choices.at(0).ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(output.usage.completion_tokens, 4);
  h.CheckIdle();
}

// Tokens "a" "</s>" "b": the text is "ab" where control tokens are not shown.
TEST_P(EngineLoopTest, StopStringsAreLookedForInWhatIsShown) {
  for (const bool skip_special : {true, false}) {
    LoopHarness h(Options());
    h.runner.set_logits(Says({0, kEos, 1, 2}, 5));
    Request request = TokenRequest(Prompt(5), 4);
    request.stop.stop = {"s>", "ab"};
    request.stop.skip_special = skip_special;
    const RequestOutput output = h.Run(request);
    EXPECT_EQ(output.choices.at(0).ends[0].matched_stop, skip_special ? "ab" : "s>");
    EXPECT_EQ(output.choices.at(0).text, skip_special ? "" : "a</");
    h.CheckIdle();
  }
}

TEST_P(EngineLoopTest, MaxTokensZeroComputesThePromptOnly) {
  LoopHarness h(Options());
  Request request = TokenRequest(Prompt(70), 0);
  request.n = 2;
  const RequestOutput output = h.Run(request);
  EXPECT_TRUE(output.finished);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.choices.at(1).ends[0].reason, FinishReason::kLength);
  EXPECT_TRUE(output.choices.at(0).tokens.empty());
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 70);
  h.CheckIdle();
}

TEST_P(EngineLoopTest, EndsWithLengthAtTheContextsEnd) {
  LoopOptions options = Options();
  options.max_context_tokens = 60;
  LoopHarness h(options);
  const RequestOutput output = h.Run(TokenRequest(Prompt(50), 1000));
  EXPECT_EQ(output.choices.at(0).tokens.size(), 10u);
  EXPECT_EQ(output.choices.at(0).ends[0].reason, FinishReason::kLength);
  const RequestOutput last = h.Run(TokenRequest(Prompt(59), 1000));
  EXPECT_EQ(last.choices.at(0).tokens.size(), 1u);
  // A whole context of prompt is computed where no answer is asked for.
  const RequestOutput full = h.Run(TokenRequest(Prompt(60), 0));
  EXPECT_EQ(full.status, absl::OkStatus());
  EXPECT_EQ(full.choices.at(0).ends[0].reason, FinishReason::kLength);
  EXPECT_EQ(h.Submit(TokenRequest(Prompt(60), 1)), nullptr);
  EXPECT_THAT(
      h.submit_status().message(),
      HasSubstr(
          "the prompt has 60 tokens, which leave none for an answer: the prompt is too long."));
  h.CheckIdle();
}

TEST_P(EngineLoopTest, RefusesWhatCannotFitNamingSizes) {
  LoopOptions options = Options();
  options.max_context_tokens = 60;
  options.num_chunks = 3;
  LoopHarness h(options);
  EXPECT_EQ(h.Submit(TokenRequest(Prompt(61), 1)), nullptr);
  EXPECT_THAT(h.submit_status().message(),
              HasSubstr("length is 60 tokens. However, the prompt has 61 tokens"));
  EXPECT_EQ(h.Submit(TokenRequest(Prompt(40), 9)), nullptr);
  EXPECT_THAT(h.submit_status().message(), HasSubstr("the KV cache holds 48"));
  EXPECT_EQ(h.Submit(TokenRequest({}, 9)), nullptr);
  EXPECT_THAT(h.submit_status().message(), HasSubstr("0 tokens"));
  EXPECT_EQ(h.Run(TokenRequest(Prompt(40), 8)).choices.at(0).tokens.size(), 8u);
  h.CheckIdle();
}

TEST_P(EngineLoopTest, TellsThePromptOnceWhereItIsNotEchoed) {
  LoopHarness h(Options());
  Request request = TokenRequest(Prompt(70), 3);
  request.tell_prompt = true;
  request.n = 2;
  const RequestOutput output = h.Run(request);
  ASSERT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.choices.at(0).prompt.size(), 70u);
  EXPECT_FALSE(output.choices.at(0).prompt[1].logprob.has_value());
  EXPECT_EQ(output.choices.at(1).prompt.size(), 0u);
  EXPECT_EQ(output.choices.at(1).tokens.size(), 3u);
  h.CheckIdle();
}

// Prompt log-probabilities come in order, with those that an unbroken computation gives.
TEST_P(EngineLoopTest, PromptLogprobsCoverThePromptOnce) {
  for (const bool echo : {false, true}) {
    LoopOptions options = Options();
    options.num_chunks = 14;  // too few for both requests: the second is preempted
    LoopHarness h(options);
    const auto other = h.Submit(TokenRequest(Prompt(20, 5), 110));
    Request request = TokenRequest(Prompt(100), 30);
    request.logprobs = {.top = 2, .prompt_top = 3};
    request.echo = echo;
    request.n = 2;
    request.sampling.temperature = 1;
    request.sampling.seed = 1;
    const RequestOutput output = h.Run(request);
    ASSERT_EQ(output.status, absl::OkStatus());
    std::vector<FakeKvCell> history;
    const auto& events = output.choices.at(0).prompt;
    ASSERT_EQ(events.size(), 100u);
    EXPECT_FALSE(events[0].logprob.has_value());
    for (size_t i = 0; i < events.size(); ++i) {
      ASSERT_EQ(static_cast<int32_t>(events[i].token), Prompt(100)[i]);
      if (i > 0) {
        const auto logits = testing::HashLogits(history, 25);
        const LogprobRow row = ComputeLogprobs(logits, events[i].token, 3);
        ASSERT_EQ(events[i].logprob->logprob, row.token.logprob);
        ASSERT_EQ(events[i].top.size(), 3u);
      }
      history.push_back({Prompt(100)[i], static_cast<int32_t>(i)});
    }
    EXPECT_EQ(output.choices.at(1).prompt.size(), echo ? 100u : 0u);
    EXPECT_EQ(output.choices.at(1).tokens.size(), 30u);
    EXPECT_EQ(output.choices.at(1).events[0].top.size(), 2u);
    h.CheckIdle();
  }
}

TEST_P(EngineLoopTest, EchoWithoutLogprobsRepeatsThePrompt) {
  LoopHarness h(Options());
  Request request = TokenRequest(Prompt(40), 3);
  request.echo = true;
  const RequestOutput output = h.Run(request);
  EXPECT_EQ(output.choices.at(0).prompt.size(), 40u);
  EXPECT_EQ(output.choices.at(0).tokens.size(), 3u);
  EXPECT_FALSE(output.choices.at(0).prompt[7].logprob.has_value());
}

// Cancelled before the first turn, in the queue behind others, in prefill, in decode.
TEST_P(EngineLoopTest, CancelAtEveryStageReleasesEverything) {
  for (int turns = 0; turns < 14; ++turns) {
    LoopOptions options = Options();
    options.max_sequences = 2;
    LoopHarness h(options);
    std::vector<std::shared_ptr<TokenStream>> others = {h.Submit(TokenRequest(Prompt(9), 12))};
    Request request = TokenRequest(Prompt(150, 2), 50);
    request.n = 1 + turns % 3;
    const auto stream = h.Submit(request);
    others.push_back(h.Submit(TokenRequest(Prompt(30, 3), 5)));
    for (int i = 0; i < turns; ++i) h.loop.Turn();
    stream->Cancel();
    h.RunUntilIdle();
    const RequestOutput output = h.Read(stream);
    EXPECT_TRUE(output.finished);
    EXPECT_EQ(output.status.code(), absl::StatusCode::kCancelled);
    for (const auto& [index, choice] : output.choices) {
      ASSERT_EQ(choice.ends.size(), 1u);
      EXPECT_EQ(choice.ends[0].reason, FinishReason::kCancelled);
    }
    LoopHarness alone;
    EXPECT_EQ(h.Read(others[0]).choices.at(0).tokens,
              alone.Run(TokenRequest(Prompt(9), 12)).choices.at(0).tokens);
    EXPECT_EQ(h.Read(others[1]).choices.at(0).tokens,
              alone.Run(TokenRequest(Prompt(30, 3), 5)).choices.at(0).tokens);
    h.CheckIdle();
  }
}

TEST_P(EngineLoopTest, DroppingTheConsumersHandleCancels) {
  LoopHarness h(Options());
  auto stream = h.Submit(TokenRequest(Prompt(9), 400));
  for (int i = 0; i < 5; ++i) h.loop.Turn();
  stream = nullptr;
  const uint64_t launched = h.runner.launched();
  h.RunUntilIdle();
  EXPECT_LE(h.runner.launched(), launched + 1);
  h.CheckIdle();
}

TEST_P(EngineLoopTest, TimeoutsEndRunningAndQueuedRequests) {
  LoopOptions options = Options();
  options.max_sequences = 1;
  LoopHarness h(options);
  Request running = TokenRequest(Prompt(9), 400);
  running.timeout_s = 5;
  const auto a = h.Submit(running);
  Request queued = TokenRequest(Prompt(9, 2), 400);
  queued.timeout_s = 2;
  const auto b = h.Submit(queued);
  const auto c = h.Submit(TokenRequest(Prompt(9, 3), 4));
  for (int i = 0; i < 5; ++i) h.loop.Turn();
  int32_t queued_then = -1;  // when the consumer hears of the end, who may come again at once
  b->SetWakeup([&] { queued_then = h.ledger->queued_requests(); });
  h.clock.Advance(std::chrono::seconds(3));
  h.loop.Turn();
  EXPECT_EQ(queued_then, 1) << "c is left";
  b->SetWakeup(nullptr);
  EXPECT_EQ(h.Read(b).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(h.Read(a).finished);
  h.clock.Advance(std::chrono::seconds(3));
  h.loop.Turn();
  const RequestOutput output = h.Read(a);
  EXPECT_EQ(output.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(output.status.message(), HasSubstr("5 s"));
  EXPECT_EQ(output.choices.at(0).ends[0].reason, FinishReason::kError);
  h.RunUntilIdle();
  EXPECT_EQ(h.Read(c).status, absl::OkStatus());
  h.CheckIdle();
}

TEST_P(EngineLoopTest, FullQueueRefusesNamingTheLimit) {
  LoopOptions options = Options();
  options.queued_requests = 2;
  options.queued_tokens = 30;
  LoopHarness h(options);
  const auto a = h.Submit(TokenRequest(Prompt(20), 5));
  EXPECT_EQ(h.Submit(TokenRequest(Prompt(20), 5)), nullptr);
  EXPECT_EQ(h.submit_status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(h.submit_status().message(), HasSubstr("limits.queued_tokens, 30"));
  const auto b = h.Submit(TokenRequest(Prompt(5), 5));
  EXPECT_EQ(h.Submit(TokenRequest(Prompt(1), 5)), nullptr);
  EXPECT_THAT(h.submit_status().message(), HasSubstr("limits.queued_requests is 2"));
  h.loop.Turn();  // both run: the queue is empty again
  EXPECT_NE(h.Submit(TokenRequest(Prompt(20), 5)), nullptr);
  h.RunUntilIdle();
  h.CheckIdle();
}

TEST(EngineLoopTwoInFlightTest, LaunchesTheSecondStepBeforeTheFirstIsCollected) {
  LoopOptions options;
  options.max_in_flight = 2;
  LoopHarness h(options);
  int from_previous = 0;
  h.runner.before_step = [&](const StepBatch& batch) {
    for (const int32_t token : batch.tokens) {
      from_previous += token == StepBatch::kFromPreviousStep ? 1 : 0;
    }
  };
  const RequestOutput output = h.Run(TokenRequest(Prompt(5), 20));
  EXPECT_EQ(output.choices.at(0).tokens.size(), 20u);
  EXPECT_EQ(from_previous, 19);
  EXPECT_EQ(h.runner.launched(), 20u);  // no step too many: the length is known before
}

}  // namespace
}  // namespace refrain::engine
