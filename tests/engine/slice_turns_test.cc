#include "engine/slice_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace refrain::engine {
namespace {

using std::chrono::milliseconds;

constexpr auto kNever = [] { return false; };

TEST(SliceTurnsTest, OneWorksAtATime) {
  SliceTurns turns;
  std::string order;  // whoever has the turn writes
  std::atomic<int> ready = 0;
  ASSERT_TRUE(turns.Take("main", kNever, milliseconds(20)));
  std::vector<std::thread> threads;
  for (const char* tenant : {"a", "b", "a", "a"}) {
    threads.emplace_back([&, tenant] {
      ++ready;
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(turns.Take(tenant, kNever, milliseconds(20)));
        order += tenant;
        turns.Pass();
      }
    });
  }
  while (ready < 4) std::this_thread::yield();
  turns.Pass();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order.size(), 800u);
  EXPECT_FALSE(turns.AnyWaits());
}

TEST(SliceTurnsTest, TurnsGoByTenant) {
  SliceTurns turns;
  std::string order;
  ASSERT_TRUE(turns.Take("main", kNever, milliseconds(20)));
  std::vector<std::thread> threads;
  // One after the other into the line.
  for (const char* tenant : {"a", "a", "a", "b", "c"}) {
    std::atomic<bool> asked = false;
    threads.emplace_back([&order, &turns, tenant, &asked] {
      // Asked for the first time when it has stood in line for a period.
      std::atomic<bool>* first = &asked;
      ASSERT_TRUE(turns.Take(
          tenant,
          [&first] {
            if (first != nullptr) *first = true;
            first = nullptr;
            return false;
          },
          milliseconds(1)));
      order += tenant;
      turns.Pass();
    });
    while (!asked) std::this_thread::yield();
  }
  turns.Pass();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, "abcaa");
}

TEST(SliceTurnsTest, WhoGivesUpHasNoTurnAndHoldsNobodyUp) {
  SliceTurns turns;
  ASSERT_TRUE(turns.Take("a", kNever, milliseconds(20)));
  EXPECT_FALSE(turns.Take(
      "b", [] { return true; }, milliseconds(1)));
  EXPECT_FALSE(turns.AnyWaits());
  std::thread other([&] {
    ASSERT_TRUE(turns.Take("c", kNever, milliseconds(20)));
    turns.Pass();
  });
  turns.Pass();
  other.join();
}

// Its turn comes between the question whether it gives up and the answer.
TEST(SliceTurnsTest, WhoGivesUpAsItsTurnComesPassesItOn) {
  SliceTurns turns;
  ASSERT_TRUE(turns.Take("a", kNever, milliseconds(20)));
  const auto give_up = [&] {
    turns.Pass();
    return true;
  };
  EXPECT_FALSE(turns.Take("b", give_up, milliseconds(1)));
  const auto in_vain = [asked = 0]() mutable { return ++asked > 20; };
  EXPECT_TRUE(turns.Take("c", in_vain, milliseconds(1)));
  EXPECT_FALSE(turns.AnyWaits());
}

}  // namespace
}  // namespace refrain::engine
