#include "engine/deadline_list.h"

#include <gtest/gtest.h>

#include <chrono>

namespace refrain::engine {
namespace {

Clock::TimePoint At(int seconds) { return Clock::TimePoint(std::chrono::seconds(seconds)); }

TEST(DeadlineListTest, TakesTheExpiredOnesOldestFirst) {
  DeadlineList list;
  list.Add(At(20), 1);
  list.Add(At(10), 2);
  list.Add(At(10), 3);
  list.Add(At(30), 4);
  EXPECT_EQ(list.TakeExpired(At(9)), std::nullopt);
  EXPECT_EQ(list.TakeExpired(At(20)), 2u);
  EXPECT_EQ(list.TakeExpired(At(20)), 3u);
  EXPECT_EQ(list.TakeExpired(At(20)), 1u);
  EXPECT_EQ(list.TakeExpired(At(20)), std::nullopt);
  EXPECT_EQ(list.size(), 1u);
}

TEST(DeadlineListTest, KeepsNothingOfWhatEndedBefore) {
  DeadlineList list;
  for (uint64_t number = 1; number <= 1000; ++number) {
    list.Add(At(1'000'000), number);
    list.Add(std::nullopt, number);
    list.Remove(At(1'000'000), number);
    list.Remove(std::nullopt, number);
  }
  EXPECT_TRUE(list.empty());
  list.Remove(At(5), 1);  // taken before: not there
  EXPECT_EQ(list.TakeExpired(At(2'000'000)), std::nullopt);
}

}  // namespace
}  // namespace refrain::engine
