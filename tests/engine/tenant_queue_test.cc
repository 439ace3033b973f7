#include "engine/tenant_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/support/heap_counts.h"

namespace refrain::engine {
namespace {

std::vector<std::string> TakeAll(TenantQueue<std::string>& queue) {
  std::vector<std::string> order;
  while (std::optional<std::string> item = queue.Pop()) order.push_back(*std::move(item));
  return order;
}

TEST(TenantQueueTest, OneTenantIsServedInOrder) {
  TenantQueue<std::string> queue;
  for (const char* item : {"1", "2", "3"}) queue.Push("a", item);
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(TakeAll(queue), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_TRUE(queue.empty());
}

TEST(TenantQueueTest, TenantsTakeTurns) {
  TenantQueue<std::string> queue;
  for (const char* item : {"a1", "a2", "a3", "a4"}) queue.Push("a", item);
  queue.Push("b", "b1");
  queue.Push("c", "c1");
  queue.Push("b", "b2");
  EXPECT_EQ(TakeAll(queue), (std::vector<std::string>{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}));
}

TEST(TenantQueueTest, ALateComerWaitsForOneOfEachOther) {
  TenantQueue<std::string> queue;
  for (int i = 0; i < 1000; ++i) queue.Push("a", "a");
  for (int i = 0; i < 1000; ++i) queue.Push("b", "b");
  EXPECT_EQ(queue.Pop(), "a");
  queue.Push("c", "c");
  EXPECT_EQ(queue.Pop(), "b");
  EXPECT_EQ(queue.Pop(), "a");
  EXPECT_EQ(queue.Pop(), "c");
  EXPECT_EQ(TakeAll(queue).size(), 1997u);
}

TEST(TenantQueueTest, HoldsWhatCanOnlyBeMoved) {
  TenantQueue<std::unique_ptr<int>> queue;
  queue.Push("", std::make_unique<int>(7));
  EXPECT_EQ(**queue.Pop(), 7);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(TenantQueueTest, TakesTheFirstThatMayGo) {
  TenantQueue<int> queue;
  for (const int item : {1, 2, 3}) queue.Push("a", item);
  for (const int item : {11, 12}) queue.Push("b", item);
  const auto even = [](const std::string&, int item) { return item % 2 == 0; };
  EXPECT_EQ(queue.PopIf(even), 2);
  EXPECT_EQ(queue.PopIf(even), 12);
  EXPECT_EQ(queue.PopIf(even), std::nullopt);
  EXPECT_EQ(queue.PopIf([](const std::string& tenant, int) { return tenant == "b"; }), 11);
  EXPECT_EQ(queue.size(), 2u);
  queue.Push("b", 13);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 13);
  EXPECT_EQ(queue.Pop(), 3);
  EXPECT_TRUE(queue.empty());
}

TEST(TenantQueueTest, WhatIsTakenOutChangesNoTurn) {
  TenantQueue<std::unique_ptr<int>> queue;
  const auto push = [&](const char* tenant, int item) {
    queue.Push(tenant, std::make_unique<int>(item));
  };
  for (const int item : {1, 2, 3, 4, 5}) push("a", item);
  for (const int item : {12, 14}) push("b", item);
  for (const int item : {21, 22}) push("c", item);
  const auto even = [](const std::unique_ptr<int>& item) { return *item % 2 == 0; };
  EXPECT_EQ(queue.TakeIf(even).size(), 5u);
  EXPECT_TRUE(queue.TakeIf(even).empty());
  EXPECT_EQ(queue.size(), 4u);
  push("b", 11);
  std::vector<int> order;
  while (const auto item = queue.Pop()) order.push_back(**item);
  EXPECT_EQ(order, (std::vector<int>{1, 21, 11, 3, 5}));
  EXPECT_TRUE(queue.empty());
}

TEST(TenantQueueTest, RemovesTheFirstThatIsMeant) {
  TenantQueue<int> queue;
  queue.Push("a", 1);
  queue.Push("b", 11);
  queue.Push("b", 13);
  const auto over_ten = [](int item) { return item > 10; };
  EXPECT_TRUE(queue.Remove(over_ten));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_TRUE(queue.Remove(over_ten));
  EXPECT_FALSE(queue.Remove(over_ten));
  queue.Push("b", 15);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 15);
  EXPECT_TRUE(queue.empty());
}

// Whichever allocation is refused, for a tenant that waits and for one that does not.
TEST(TenantQueueTest, APushWithoutMemoryChangesNothing) {
  int refused = 0;
  for (const char* tenant :
       {"a tenant with a name that has to be allocated", "another of this kind"}) {
    for (int64_t allocations = 0;; ++allocations) {
      TenantQueue<int> queue;
      queue.Push("a tenant with a name that has to be allocated", 1);
      testing::HeapCountsOfThread().until_refused = allocations;
      bool pushed = true;
      try {
        queue.Push(tenant, 2);
      } catch (const std::bad_alloc&) {
        pushed = false;
      }
      testing::HeapCountsOfThread().until_refused = -1;
      refused += pushed ? 0 : 1;
      EXPECT_EQ(queue.size(), pushed ? 2u : 1u);
      queue.Push(tenant, 3);
      EXPECT_EQ(queue.Pop(), 1);
      if (pushed) {
        EXPECT_EQ(queue.Pop(), 2);
      }
      EXPECT_EQ(queue.Pop(), 3);
      EXPECT_TRUE(queue.empty());
      if (pushed) break;
    }
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace refrain::engine
