#include "engine/slice_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/heap_counts.h"
#include "tests/support/rounds.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::SomeRoundKeeps;
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

// Scenario: ten threads stand in front of it, each of which has the turn for 30 ms.
TEST(SliceTurnsTest, AsksWhoWaitsAlsoWhileOthersPassTurns) {
  const auto asks = [] {
    SliceTurns turns;
    EXPECT_TRUE(turns.Take("a", kNever, milliseconds(20)));
    std::atomic<int> in_line = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 10; ++i) {
      threads.emplace_back([&] {
        // Asked for the first time when it has stood in line for a period.
        const auto stands = [&, asked = false]() mutable {
          if (!std::exchange(asked, true)) ++in_line;
          return false;
        };
        EXPECT_TRUE(turns.Take("a", stands, milliseconds(10)));
        std::this_thread::sleep_for(milliseconds(30));
        turns.Pass();
      });
    }
    while (in_line < 10) std::this_thread::sleep_for(milliseconds(1));
    turns.Pass();
    const bool taken = turns.Take(
        "a", [] { return true; }, milliseconds(100));
    if (taken) turns.Pass();
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(turns.AnyWaits());
    return !taken;
  };
  EXPECT_TRUE(SomeRoundKeeps(asks));
}

// Whichever allocation is refused: others go on.
TEST(SliceTurnsTest, WhoGetsNoMemoryHasNoTurn) {
  for (int64_t allocations = 0;; ++allocations) {
    SliceTurns turns;
    ASSERT_TRUE(turns.Take("first", kNever, milliseconds(20)));
    turns.Pass();
    testing::HeapCountsOfThread().until_refused = allocations;
    bool taken = false;
    try {
      taken = turns.Take("a tenant with a name that has to be allocated", kNever, milliseconds(20));
    } catch (const std::bad_alloc&) {
    }
    testing::HeapCountsOfThread().until_refused = -1;
    if (taken) {
      EXPECT_GT(allocations, 0);
      return;
    }
    std::thread other([&] {
      const auto begin = std::chrono::steady_clock::now();
      const auto late = [begin] {
        return std::chrono::steady_clock::now() - begin > std::chrono::seconds(5);
      };
      EXPECT_TRUE(turns.Take("other", late, milliseconds(20))) << allocations << " allocations";
    });
    other.join();
  }
}

TEST(SliceTurnsTest, WhoThrowsLeavesTheLine) {
  SliceTurns turns;
  ASSERT_TRUE(turns.Take("main", kNever, milliseconds(1)));
  const auto no_memory = []() -> bool { throw std::bad_alloc(); };
  EXPECT_THROW(turns.Take("a", no_memory, milliseconds(1)), std::bad_alloc);
  EXPECT_FALSE(turns.AnyWaits());
  turns.Pass();
  EXPECT_TRUE(turns.Take("b", kNever, milliseconds(1)));
}

}  // namespace
}  // namespace refrain::engine
