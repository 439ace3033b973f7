#include "server/byte_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace refrain::server {
namespace {

class ByteBudgetTest : public ::testing::Test {
 protected:
  // As many holds of `bytes` as the owner may have more.
  size_t Fill(const std::string& owner, size_t bytes) {
    size_t count = 0;
    for (;; ++count) {
      auto held = std::make_unique<HeldBytes>(budget_, owner);
      if (!held->GrowTo(bytes)) return count;
      held_.push_back(std::move(held));
    }
  }

  const std::shared_ptr<ByteBudget> budget_ = std::make_shared<ByteBudget>(1200);
  std::vector<std::unique_ptr<HeldBytes>> held_;
};

TEST_F(ByteBudgetTest, NobodysBytesAreBoundedTogether) {
  HeldBytes grows(budget_, "");
  EXPECT_TRUE(grows.GrowTo(500));
  EXPECT_EQ(Fill("", 100), 7u);
  EXPECT_FALSE(grows.GrowTo(501));
  EXPECT_TRUE(grows.GrowTo(400)) << "it holds more";
  held_.pop_back();
  EXPECT_TRUE(grows.GrowTo(600));
  EXPECT_FALSE(grows.GrowTo(601));
}

TEST_F(ByteBudgetTest, AnOwnerMayHoldAsMuchAsItLeavesFree) {
  EXPECT_EQ(Fill("a", 100), 6u);
  EXPECT_EQ(Fill("b", 100), 3u);
  EXPECT_EQ(Fill("c", 50), 3u);
  EXPECT_EQ(Fill("a", 1), 0u);
  held_.clear();
  EXPECT_EQ(Fill("b", 100), 6u) << "all came back";
}

// Else a body of more than half of the bound would be refused for ever.
TEST_F(ByteBudgetTest, WhatAnOwnerHoldsAtOnePlaceOnlyMayBeAnything) {
  {
    HeldBytes only(budget_, "a");
    EXPECT_TRUE(only.GrowTo(700));
    EXPECT_TRUE(only.GrowTo(1200));
    EXPECT_EQ(Fill("b", 1), 0u);
  }
  HeldBytes first(budget_, "a"), second(budget_, "a");
  EXPECT_TRUE(first.GrowTo(700));
  EXPECT_FALSE(second.GrowTo(1));
  EXPECT_TRUE(first.GrowTo(800));
  EXPECT_EQ(Fill("b", 100), 2u);
}

TEST_F(ByteBudgetTest, LosesNothingBetweenThreads) {
  std::vector<std::thread> threads;
  for (const char* owner : {"", "", "a", "a", "b"}) {
    threads.emplace_back([budget = budget_, owner] {
      for (size_t i = 0; i < 10'000; ++i) HeldBytes(budget, owner).GrowTo(i % 500);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Fill("", 1), 1200u);
}

}  // namespace
}  // namespace refrain::server
