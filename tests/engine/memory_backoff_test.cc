#include "engine/memory_backoff.h"

#include <gtest/gtest.h>

namespace refrain::engine {
namespace {

TEST(MemoryBackoffTest, HoldsNothingBackUntilAStepFails) {
  MemoryBackoff backoff;
  backoff.Ran();
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
  for (int i = 0; i < MemoryBackoff::kStepsUntilMore - 1; ++i) backoff.Ran();
  EXPECT_EQ(backoff.Limit(512), 50);
  backoff.Ran();
  EXPECT_EQ(backoff.Limit(512), 100);
  for (int i = 0; i < 40 * MemoryBackoff::kStepsUntilMore; ++i) backoff.Ran();
  EXPECT_EQ(backoff.Limit(1 << 30), 1 << 30);
}

// Or sequences that take more steps to come back than lie between two tries would never get on.
TEST(MemoryBackoffTest, WaitsLongerAfterEachTryThatFailed) {
  MemoryBackoff backoff;
  EXPECT_TRUE(backoff.Shrink(8));
  int until_more = MemoryBackoff::kStepsUntilMore;
  for (int tries = 0; tries < 4; ++tries) {
    for (int i = 0; i < until_more - 1; ++i) backoff.Ran();
    EXPECT_EQ(backoff.Limit(512), 4) << tries;
    backoff.Ran();
    EXPECT_EQ(backoff.Limit(512), 8) << tries;
    EXPECT_TRUE(backoff.Shrink(8));
    until_more *= 2;
  }
}

}  // namespace
}  // namespace refrain::engine
