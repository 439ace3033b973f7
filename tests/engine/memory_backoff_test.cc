#include "engine/memory_backoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace refrain::engine {
namespace {

// Of as many tokens as they may have.
void RunSteps(int steps, MemoryBackoff& backoff) {
  for (int i = 0; i < steps; ++i) backoff.Ran(backoff.Limit(512), 512);
}

TEST(MemoryBackoffTest, HoldsNothingBackUntilAStepFails) {
  MemoryBackoff backoff;
  backoff.Ran(512, 512);
  EXPECT_EQ(backoff.Limit(512), 512);
}

TEST(MemoryBackoffTest, AllowsHalfOfWhatFailedLast) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(300));
  EXPECT_EQ(backoff.Limit(512), 150);
  EXPECT_EQ(backoff.Limit(100), 100);
  EXPECT_TRUE(backoff.Shrink(75));
  EXPECT_EQ(backoff.Limit(512), 37);
  // A larger one that was on its way already.
  EXPECT_TRUE(backoff.Shrink(300));
  EXPECT_EQ(backoff.Limit(512), 37);
}

TEST(MemoryBackoffTest, KnowsNoStepSmallerThanOneToken) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(2));
  EXPECT_EQ(backoff.Limit(512), 1);
  EXPECT_FALSE(backoff.Shrink(1));
}

TEST(MemoryBackoffTest, AllowsTwiceAsMuchAfterManyStepsThatRan) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(100));
  RunSteps(MemoryBackoff::kStepsUntilMore - 1, backoff);
  EXPECT_EQ(backoff.Limit(512), 50);
  RunSteps(1, backoff);
  EXPECT_EQ(backoff.Limit(512), 100);
}

TEST(MemoryBackoffTest, HoldsNothingBackOnceTheBudgetIsReached) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(100));
  RunSteps(3 * MemoryBackoff::kStepsUntilMore, backoff);
  EXPECT_EQ(backoff.Limit(512), 400);
  RunSteps(MemoryBackoff::kStepsUntilMore, backoff);
  EXPECT_EQ(backoff.Limit(1 << 30), 1 << 30);
}

// Or sequences that take more steps to come back than lie between two tries would never get on.
TEST(MemoryBackoffTest, WaitsLongerAfterEachTryThatFailed) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(8));
  int until_more = MemoryBackoff::kStepsUntilMore;
  for (int tries = 0; tries < 4; ++tries) {
    RunSteps(until_more - 1, backoff);
    EXPECT_EQ(backoff.Limit(512), 4) << tries;
    RunSteps(1, backoff);
    EXPECT_EQ(backoff.Limit(512), 8) << tries;
    EXPECT_TRUE(backoff.Shrink(8));
    until_more *= 2;
  }
}

TEST(MemoryBackoffTest, ATryOfTheWholeBudgetThatFailedIsOneToo) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(512));
  RunSteps(MemoryBackoff::kStepsUntilMore, backoff);
  EXPECT_EQ(backoff.Limit(512), 512);
  backoff.Ran(300, 512);  // more than before, less than what fails
  EXPECT_TRUE(backoff.Shrink(512));
  RunSteps(2 * MemoryBackoff::kStepsUntilMore - 1, backoff);
  EXPECT_EQ(backoff.Limit(512), 256);
  RunSteps(1, backoff);
  EXPECT_EQ(backoff.Limit(512), 512);
  // Such steps run: what fails now is another matter.
  RunSteps(1, backoff);
  EXPECT_TRUE(backoff.Shrink(512));
  RunSteps(MemoryBackoff::kStepsUntilMore, backoff);
  EXPECT_EQ(backoff.Limit(512), 512);
}

// Steps that fail now and then, for reasons of their own, leave most of the time unlimited.
TEST(MemoryBackoffTest, WaitsNoLongerForStepsThatFailWhateverTheirSize) {
  MemoryBackoff backoff;
  int64_t unlimited_steps = 0, steps = 0, since_failure = 0;
  for (uint32_t random = 1; steps < 10'000'000; ++steps, ++since_failure) {
    random = random * 1664525u + 1013904223u;
    const int32_t limit = backoff.Limit(24);
    unlimited_steps += limit == 24;
    const int32_t tokens = 1 + static_cast<int32_t>((random >> 16) % limit);
    if (since_failure > 100 && (random >> 8) % 4000 == 0) {
      since_failure = 0;
      backoff.Shrink(tokens);
    } else {
      backoff.Ran(tokens, 24);
    }
  }
  EXPECT_GT(unlimited_steps, steps / 2);
}

}  // namespace
}  // namespace refrain::engine
