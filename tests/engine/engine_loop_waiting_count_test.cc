// How many sequences the statistics say wait, for the first time or again.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

Request Choices(const std::vector<int32_t>& prompt, int32_t max_tokens, int32_t n) {
  Request request = TokenRequest(prompt, max_tokens);
  request.n = n;
  request.stop.ignore_eos = true;
  return request;
}

TEST(EngineLoopWaitingCountTest, ChoicesThatLackASlotWait) {
  LoopHarness h({.max_sequences = 2, .step_token_budget = 32});
  const auto stream = h.Submit(Choices(Prompt(40), 10, 8));
  EXPECT_EQ(h.loop.stats().waiting_sequences, 1) << "how many they will be is not known yet";
  h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  EXPECT_EQ(h.loop.stats().waiting_sequences, 7);
  EXPECT_EQ(h.loop.stats().deferred_sequences, 7) << "the first computes their prompt";
  EXPECT_EQ(h.loop.stats().queued_requests, 0);
  RequestOutput output;
  while (output.choices.size() < 2 && h.loop.Turn()) ReadInto(*stream, h.tokenizer, &output);
  EXPECT_EQ(h.loop.stats().running_sequences, 2);
  EXPECT_EQ(h.loop.stats().waiting_sequences, 6);
  EXPECT_EQ(h.loop.stats().deferred_sequences, 0) << "they wait for slots";
  h.RunUntilIdle();
  h.CheckIdle();
}

// As one that waits for another request's prefix does.
TEST(EngineLoopWaitingCountTest, ChoicesOfARequestThatHasNotRunWaitWithIt) {
  LoopHarness h({.max_sequences = 2, .step_token_budget = 32});
  const auto first = h.Submit(TokenRequest(Prompt(100), 4));
  h.loop.Turn();
  const auto held = h.Submit(Choices(Prompt(100), 4, 3));
  const auto alone = h.Submit(Choices(Prompt(40, 9), 0, 4));  // of a prompt alone one choice runs
  h.loop.Turn();
  EXPECT_EQ(h.loop.stats().held_sequences, 1);
  EXPECT_EQ(h.loop.stats().deferred_sequences, 1);
  EXPECT_EQ(h.loop.stats().running_sequences + h.loop.stats().waiting_sequences, 1 + 3 + 1);
  h.RunUntilIdle();
  h.CheckIdle();
}

// Small chunks: they take them from each other.
TEST(EngineLoopWaitingCountTest, ASequenceRunsOrWaitsUntilItEnds) {
  for (const bool prefix_cache : {true, false}) {
    constexpr int32_t kRequests = 5, kChoices = 3;
    LoopHarness h({.num_chunks = 16, .max_sequences = 6, .prefix_cache = prefix_cache});
    std::vector<std::shared_ptr<TokenStream>> streams;
    std::vector<RequestOutput> outputs(kRequests);
    for (int32_t i = 0; i < kRequests; ++i) {
      streams.push_back(h.Submit(Choices(Prompt(20 + 8 * i, i), 40 + i, kChoices)));
    }
    const auto check = [&] {
      int32_t live = 0;
      for (size_t i = 0; i < streams.size(); ++i) {
        if (streams[i] == nullptr) continue;
        ReadInto(*streams[i], h.tokenizer, &outputs[i]);
        live += kChoices;
        for (const auto& [index, choice] : outputs[i].choices) live -= choice.ends.empty() ? 0 : 1;
      }
      const EngineStats stats = h.loop.stats();
      EXPECT_EQ(stats.running_sequences + stats.waiting_sequences, live) << stats.steps_total;
      EXPECT_LE(stats.deferred_sequences, stats.waiting_sequences);
    };
    for (int turns = 0; h.loop.Turn() && !HasFailure(); ++turns) {
      check();
      if (turns != 1) continue;
      streams.back() = nullptr;  // its client has gone before it ran
      h.loop.Turn();
      check();
    }
    EXPECT_GT(h.loop.stats().preemptions_total, 0);
    h.CheckIdle();
  }
}

}  // namespace
}  // namespace refrain::engine
