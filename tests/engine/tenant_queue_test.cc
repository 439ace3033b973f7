#include "engine/tenant_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace refrain::engine
