#include "engine/grammar/grammar_shares.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "tests/support/fake_clock.h"
#include "tests/support/heap_counts.h"

namespace refrain::engine {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostBytes = 1000;

class GrammarSharesTest : public ::testing::Test {
 protected:
  void Add(const std::string& tenant, int grammars, size_t bytes = 10) {
    for (int i = 0; i < grammars; ++i) shares_.Add(tenant, bytes);
  }
  // One goes and another comes at the end of each `period`.
  void TakeTurns(const std::string& tenant, int turns, std::chrono::duration<double> period) {
    for (int i = 0; i < turns; ++i) {
      clock_.Advance(period);
      shares_.Subtract(tenant, 10);
      shares_.Add(tenant, 10);
    }
  }
  double Seconds(const std::string& tenant) {
    return shares_.SecondsUntilShare(tenant).value_or(0);
  }

  testing::FakeClock clock_;
  GrammarShares shares_{kMostBytes, &clock_};
};

TEST_F(GrammarSharesTest, ATenantHasAsMuchAsIsLeftFree) {
  Add("a", 49);
  EXPECT_FALSE(shares_.SecondsUntilShare("a").has_value());
  Add("a", 1);
  EXPECT_TRUE(shares_.SecondsUntilShare("a").has_value());
  EXPECT_FALSE(shares_.SecondsUntilShare("b").has_value()) << "which has none";
  Add("b", 25);
  EXPECT_TRUE(shares_.SecondsUntilShare("b").has_value()) << "250 of it, 750 of all";
  shares_.Subtract("b", 10);
  EXPECT_FALSE(shares_.SecondsUntilShare("b").has_value());
  EXPECT_EQ(shares_.bytes(), 740u);
}

// More than all: what is let in is of any size.
TEST_F(GrammarSharesTest, BeyondTheBoundNobodyHasAShare) {
  Add("a", 1, 5 * kMostBytes);
  EXPECT_TRUE(shares_.SecondsUntilShare("a").has_value());
  EXPECT_TRUE(shares_.SecondsUntilShare("b").has_value());
}

// Two go in a second; 21 of 70 have to.
TEST_F(GrammarSharesTest, TellsATenantAloneWhenItsOwnWillHaveGone) {
  Add("a", 70);
  TakeTurns("a", 40, 500ms);
  EXPECT_NEAR(Seconds("a"), 10.5, 1);
}

// Four of 40 have to go, or two that are its own.
TEST_F(GrammarSharesTest, CountsThoseOfOthersThatGo) {
  Add("b", 60);
  Add("a", 22);
  TakeTurns("b", 20, 1s);
  EXPECT_NEAR(Seconds("a"), 4, 1);
}

// Ten go while nobody could be refused, and one a second once somebody could.
TEST_F(GrammarSharesTest, MeasuresNothingWhileThereIsRoom) {
  Add("a", 10);
  clock_.Advance(1h);
  TakeTurns("a", 1000, 1ms);
  Add("a", 50);
  TakeTurns("a", 20, 1s);
  EXPECT_NEAR(Seconds("a"), 11, 1.5);
  // Which the next time begins with, after an idle hour.
  for (int i = 0; i < 60; ++i) shares_.Subtract("a", 10);
  clock_.Advance(1h);
  Add("a", 60);
  clock_.Advance(100ms);
  const double again = Seconds("a");
  EXPECT_GE(again, 0.1);
  EXPECT_LE(again, 12.5);
}

// Nothing has been measured yet: soon at first, later as it takes longer.
TEST_F(GrammarSharesTest, TellsAFirstBurstToComeBackSoon) {
  Add("a", 50);
  clock_.Advance(5ms);
  EXPECT_LT(Seconds("a"), 1);
  clock_.Advance(8s);
  EXPECT_NEAR(Seconds("a"), 8, 0.1);
}

// Whichever allocation is refused.
TEST(GrammarSharesMemoryTest, WhatFindsNoMemoryIsNotCounted) {
  const std::string tenant = "a tenant with a name that has to be allocated";
  bool added = false;
  for (int64_t allocations = 0; !added; ++allocations) {
    GrammarShares shares(kMostBytes);
    testing::HeapCountsOfThread().until_refused = allocations;
    try {
      shares.Add(tenant, kMostBytes);
      added = true;
    } catch (const std::bad_alloc&) {
    }
    testing::HeapCountsOfThread().until_refused = -1;
    EXPECT_EQ(shares.bytes(), added ? kMostBytes : 0) << allocations;
    EXPECT_EQ(shares.SecondsUntilShare(tenant).has_value(), added) << allocations;
    EXPECT_TRUE(!added || allocations > 1) << "nothing was refused";
  }
}

}  // namespace
}  // namespace refrain::engine
