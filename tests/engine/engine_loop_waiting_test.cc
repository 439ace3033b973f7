// What a turn costs for those that wait: measured, with a wide margin (tag `exclusive`).

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_loop.h"
#include "tests/engine/costless_loop.h"
#include "tests/support/rounds.h"

namespace refrain::engine {
namespace {

using testing::CostlessLoop;

constexpr int32_t kChunkTokens = 64;
constexpr int32_t kLongTokens = 1024 * kChunkTokens + 2;
constexpr int32_t kShortTokens = kChunkTokens + 2;
constexpr int kWaiting = 16;

CostlessLoop MakeLoop(int32_t step_token_budget = 1 << 20, int32_t max_sequences = 1) {
  return CostlessLoop({.num_chunks = (kWaiting + 1) * (kLongTokens / kChunkTokens + 4),
                       .scheduler = {.max_sequences = max_sequences,
                                     .step_token_budget = step_token_budget,
                                     .chunk_tokens = kChunkTokens}});
}

// Conversations that are cached wait for the one slot.
double TurnUsWhileCachedPromptsWait(int32_t prompt_tokens) {
  CostlessLoop h = MakeLoop();
  for (int i = 0; i < kWaiting; ++i) {
    h.Submit({.seed = 1 + i, .prompt_tokens = prompt_tokens, .max_tokens = 0});
    h.RunUntilIdle();
  }
  h.Submit({.seed = 0, .prompt_tokens = 10, .max_tokens = 1000});
  for (int i = 0; i < kWaiting; ++i)
    h.Submit({.seed = 1 + i, .prompt_tokens = prompt_tokens, .max_tokens = 10});
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  return h.MedianTurnUs(40);
}

// The one that runs extends the chunk in which the prompt of those that wait ends.
double TurnUsWhileTheSamePromptWaits(int32_t prompt_tokens) {
  CostlessLoop h = MakeLoop();
  h.Submit({.seed = 0, .prompt_tokens = prompt_tokens, .max_tokens = 1000});
  h.loop.Turn();
  for (int i = 0; i < kWaiting; ++i)
    h.Submit({.seed = 0, .prompt_tokens = prompt_tokens, .max_tokens = 10});
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  return h.MedianTurnUs(40);
}

// A walk over the idle chunks of all that wait would cost 15 times as much, and more.
TEST(EngineLoopWaitingTest, LongCachedPromptsCostATurnNoMoreThanShortOnes) {
  const double short_us = TurnUsWhileCachedPromptsWait(kShortTokens);
  EXPECT_LT(TurnUsWhileCachedPromptsWait(kLongTokens), 3 * short_us + 10) << short_us;
}

// To match them again would cost thousands of microseconds.
TEST(EngineLoopWaitingTest, PromptsThatEndInAChunkThatGrowsAreNotMatchedInEveryTurn) {
  const double short_us = TurnUsWhileTheSamePromptWaits(kShortTokens);
  EXPECT_LT(TurnUsWhileTheSamePromptWaits(kLongTokens), 3 * short_us + 10) << short_us;
}

// The turn that releases so many who were held for what one computes in three steps.
double TurnUsOfARelease(int held) {
  CostlessLoop h = MakeLoop(kLongTokens / 3 + 1);
  for (int i = 0; i <= held; ++i)
    h.Submit({.seed = 0, .prompt_tokens = kLongTokens, .max_tokens = 100});
  h.loop.Turn();
  EXPECT_EQ(h.loop.held_sequences(), static_cast<size_t>(held));
  h.loop.Turn();
  const double us = h.TurnUs();
  EXPECT_EQ(h.loop.held_sequences(), 0u);
  return us;
}

// To match all of them at once would cost 10 times as much for 10 times as many.
TEST(EngineLoopWaitingTest, AReleaseOfManyCostsATurnHardlyMoreThanOneOfFew) {
  double few_us = TurnUsOfARelease(kWaiting), many_us = TurnUsOfARelease(200);
  for (int i = 0; i < 2; ++i) {
    few_us = std::min(few_us, TurnUsOfARelease(kWaiting));
    many_us = std::min(many_us, TurnUsOfARelease(200));
  }
  EXPECT_LT(many_us, 3 * few_us + 500) << few_us;
}

// The turn in which one goes away, out of the middle of so many whose other choices wait.
double TurnUsOfACancel(int requests) {
  CostlessLoop h = MakeLoop(1 << 20, requests);
  for (int i = 0; i < requests; ++i)
    h.Submit({.seed = i % 20, .prompt_tokens = 2, .max_tokens = 1000, .n = 128});
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, requests);
  h.Cancel(static_cast<uint64_t>(requests) / 2);
  return h.TurnUs();
}

// To take choice after choice out of the queue would cost 15 times as much.
TEST(EngineLoopWaitingTest, ManyChoicesLeaveALongQueueAsFastAsAShortOne) {
  double few_us = TurnUsOfACancel(4), many_us = 0;
  EXPECT_TRUE(testing::SomeRoundKeeps([&] {
    few_us = std::min(few_us, TurnUsOfACancel(4));
    many_us = TurnUsOfACancel(64);
    return many_us < 3 * few_us + 200;
  })) << many_us
      << " us of 64, " << few_us << " us of 4";
}

// The turn in which the last of so many sequences ends, or goes away before it does, one of which
// is the answer. The others have ended before.
double TurnUsOfTheEndOfABestOf(int32_t prompt_tokens, bool cancelled) {
  constexpr int32_t kSequences = 64, kTokens = 4;
  CostlessLoop h = MakeLoop(1 << 20, kSequences - 1);
  h.Submit(
      {.seed = 0, .prompt_tokens = prompt_tokens, .max_tokens = kTokens, .best_of = kSequences});
  while (h.loop.stats().generated_tokens_total < kSequences * kTokens - 1) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  if (cancelled) h.Cancel(1);
  const double us = h.TurnUs();
  EXPECT_EQ(h.loop.stats().running_sequences, 0);
  return us;
}

// To copy and match the prompt for each of them would cost 5,000 microseconds, and more.
TEST(EngineLoopWaitingTest, ABestOfBehindALongPromptEndsNearlyAsFastAsBehindAShortOne) {
  for (const bool cancelled : {false, true}) {
    double short_us = TurnUsOfTheEndOfABestOf(kShortTokens, cancelled), long_us = 0;
    EXPECT_TRUE(testing::SomeRoundKeeps([&] {
      short_us = std::min(short_us, TurnUsOfTheEndOfABestOf(kShortTokens, cancelled));
      long_us = TurnUsOfTheEndOfABestOf(kLongTokens, cancelled);
      return long_us < 3 * short_us + 1000;
    })) << long_us
        << " us, behind a short one " << short_us << (cancelled ? ", cancelled" : "");
  }
}

}  // namespace
}  // namespace refrain::engine
