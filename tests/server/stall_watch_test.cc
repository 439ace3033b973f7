#include "server/stall_watch.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace refrain::server {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kStep = StallWatch::kStepBytes;
constexpr StallWatch::TimePoint kBegin{1000h};

TEST(StallWatchTest, NothingToTakeIsNoStall) {
  StallWatch watch(10s);
  for (int hour = 0; hour < 5; ++hour) {
    EXPECT_FALSE(watch.IsStalled({.acknowledged = 700, .outstanding = 0}, kBegin + hour * 1h));
  }
  // What came since has the whole time.
  const SentBytes sent = {.acknowledged = 700, .outstanding = 3};
  EXPECT_FALSE(watch.IsStalled(sent, kBegin + 100h));
  EXPECT_EQ(watch.latest(), kBegin + 100h + 10s);
  EXPECT_FALSE(watch.IsStalled(sent, kBegin + 100h + 9999ms));
  EXPECT_TRUE(watch.IsStalled(sent, kBegin + 100h + 10s));
}

// A byte now and then would else hold what is outstanding for as long as its client likes.
TEST(StallWatchTest, AStepHasToBeTakenAsAWhole) {
  StallWatch watch(10s);
  const auto looks = [&](uint64_t acknowledged, std::chrono::seconds since) {
    return watch.IsStalled({.acknowledged = acknowledged, .outstanding = 1 << 20}, kBegin + since);
  };
  EXPECT_FALSE(looks(5, 0s));
  EXPECT_FALSE(looks(5 + kStep - 1, 9s));
  EXPECT_TRUE(looks(5 + kStep - 1, 10s));
}

TEST(StallWatchTest, EachStepHasItsTime) {
  StallWatch watch(10s);
  const auto looks = [&](uint64_t acknowledged, std::chrono::seconds since) {
    return watch.IsStalled({.acknowledged = acknowledged, .outstanding = 1 << 20}, kBegin + since);
  };
  for (int step = 0; step < 100; ++step) {
    EXPECT_FALSE(looks(kStep * step, 9s * step)) << step;
    EXPECT_FALSE(looks(kStep * step + kStep / 2, 9s * step + 5s)) << step;
  }
  EXPECT_TRUE(looks(kStep * 99 + kStep / 2, 9s * 99 + 10s));
}

// The little that was outstanding is a step, whatever has been added behind it.
TEST(StallWatchTest, WhatIsLessThanAStepIsOne) {
  StallWatch watch(10s);
  EXPECT_FALSE(watch.IsStalled({.acknowledged = 0, .outstanding = 100}, kBegin));
  EXPECT_FALSE(watch.IsStalled({.acknowledged = 100, .outstanding = 1 << 20}, kBegin + 9s));
  EXPECT_EQ(watch.latest(), kBegin + 19s);
}

TEST(SentBytesTest, AreNoneOfWhatIsNoConnection) {
  EXPECT_FALSE(SentBytesOf(-1).has_value());
  const int file = ::dup(0);
  ASSERT_GE(file, 0);
  EXPECT_FALSE(SentBytesOf(file).has_value());
  ::close(file);
}

}  // namespace
}  // namespace refrain::server
