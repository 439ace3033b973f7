// What waiting requests have found in the cache is there when their turn comes, in the order in
// which turns come: of several tenants, and where requests overtake others.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::TokenRequest;

constexpr int32_t kChunkTokens = 16;

// `chunks` chunks that no other number has.
std::vector<int32_t> Beginning(int32_t number, int32_t chunks) {
  std::vector<int32_t> ids = {number % 24, number / 24 % 24, number / 576 % 24};
  while (static_cast<int32_t>(ids.size()) < chunks * kChunkTokens) ids.push_back(ids.size() % 23);
  return ids;
}

// The same, then `chunks` chunks of which `turn` tells the first.
std::vector<int32_t> Continued(std::vector<int32_t> ids, int32_t turn, int32_t chunks) {
  const size_t end = ids.size() + static_cast<size_t>(chunks * kChunkTokens);
  ids.push_back(turn % 24);
  ids.push_back(turn / 24 % 24);
  while (ids.size() < end) ids.push_back(ids.size() % 19);
  return ids;
}

class EngineLoopAwaitingTest : public ::testing::TestWithParam<Policy> {};

INSTANTIATE_TEST_SUITE_P(Policies, EngineLoopAwaitingTest,
                         ::testing::Values(Policy::kFcfs, Policy::kLongestPrefix,
                                           Policy::kPriority));

// A thousand of tenant a's requests, each with two chunks in the cache, wait as eight of tenant b's
// come, each with four chunks there. There is room for little more, and who runs takes new chunks:
// those of a's last ones, which run when b's have long ended.
TEST_P(EngineLoopAwaitingTest, AnotherTenantsQueueTakesNothingThatIsUsedSooner) {
  constexpr int kOfA = 1000, kOfB = 8;
  LoopHarness h({.num_chunks = 2 * kOfA + 4 * kOfB + 10,
                 .max_sequences = 2,
                 .step_token_budget = 64,
                 .policy = GetParam(),
                 .queued_requests = 2 * kOfA});
  const auto submit = [&](const std::string& tenant, const std::vector<int32_t>& prompt,
                          int32_t max_tokens) {
    Request request = TokenRequest(prompt, max_tokens);
    request.tenant = tenant;
    return h.Submit(std::move(request));
  };
  std::vector<std::shared_ptr<TokenStream>> before, of_a, of_b;
  for (int i = 0; i < kOfA; ++i) before.push_back(submit("a", Beginning(i, 2), 0));
  for (int i = 0; i < kOfB; ++i) before.push_back(submit("b", Beginning(5000 + i, 4), 0));
  h.RunUntilIdle();
  for (int i = 0; i < kOfA; ++i) of_a.push_back(submit("a", Continued(Beginning(i, 2), i, 3), 4));
  for (int i = 0; i < kOfB; ++i) {
    of_b.push_back(submit("b", Continued(Beginning(5000 + i, 4), i, 20), 4));
  }
  const int64_t cached_before = h.loop.stats().cached_prompt_tokens_total;
  h.RunUntilIdle();
  for (const auto& stream : of_b) EXPECT_EQ(h.Read(stream).usage.cached_tokens, 4 * kChunkTokens);
  RecordProperty("cached", h.loop.stats().cached_prompt_tokens_total - cached_before);
  h.CheckIdle();
}

// A request of the lowest rank waits behind others and ages while one runs whose answer takes, in
// the end, the room of one of two conversations. What the aged one will use outlives what a better
// one will, for it runs first.
TEST_P(EngineLoopAwaitingTest, WhatAnAgedRequestWillUseIsEvictedAfterWhatABetterOneWill) {
  for (const bool ages : {true, false}) {
    const Policy policy = GetParam();
    LoopHarness h(
        {.num_chunks = 14, .max_sequences = 1, .policy = policy, .ageing_steps = ages ? 20 : 1000});
    h.Run(TokenRequest(Beginning(1, 4), 0));
    h.Run(TokenRequest(Beginning(2, 5), 0));
    const auto runs = h.Submit(TokenRequest(Beginning(3, 1), 100));
    h.loop.Turn();
    Request low = TokenRequest(Beginning(1, 4), 1);
    low.priority = 9;
    const auto older = h.Submit(low);
    for (int i = 0; i < 10; ++i) h.loop.Turn();
    const auto better = h.Submit(TokenRequest(Beginning(2, 5), 1));
    h.RunUntilIdle();
    const int32_t of_older = h.Read(older).usage.cached_tokens;
    const int32_t of_better = h.Read(better).usage.cached_tokens;
    if (ages || policy == Policy::kFcfs) {
      EXPECT_EQ(of_older, 4 * kChunkTokens - 1);
      EXPECT_LT(of_better, 5 * kChunkTokens - 1);
    } else {
      EXPECT_LT(of_older, 4 * kChunkTokens - 1);
      EXPECT_EQ(of_better, 5 * kChunkTokens - 1);
    }
    h.CheckIdle();
  }
}

// A thousand requests of tenant a, two for each conversation, await nearly all that is cached. A
// conversation of tenant b, which waits for nothing between its turns, goes on long before they
// have run.
TEST_P(EngineLoopAwaitingTest, ALongQueueLeavesSomethingToWhoComesBack) {
  constexpr int kOfA = 1000, kConversations = kOfA / 2, kChunks = 8;
  LoopHarness h({.num_chunks = 4 * kConversations + 20,
                 .max_sequences = 2,
                 .step_token_budget = 64,
                 .eviction = "lru",
                 .policy = GetParam(),
                 .queued_requests = 2 * kOfA});
  const auto submit = [&](const std::string& tenant, const std::vector<int32_t>& prompt,
                          int32_t max_tokens = 4) {
    Request request = TokenRequest(prompt, max_tokens);
    request.tenant = tenant;
    return h.Submit(std::move(request));
  };
  std::vector<std::shared_ptr<TokenStream>> before, of_a;
  for (int i = 0; i < kConversations; ++i) before.push_back(submit("a", Beginning(i, 4), 0));
  h.RunUntilIdle();
  for (int i = 0; i < kOfA; ++i) {
    of_a.push_back(submit("a", Continued(Beginning(i % kConversations, 4), i, 3)));
  }
  std::vector<int32_t> prompt = Beginning(5000, kChunks);
  for (int turn = 0; turn < 4; ++turn) {
    const auto stream = submit("b", prompt);
    for (int i = 0; i < 60; ++i) h.loop.Turn();
    const testing::RequestOutput output = h.Read(stream);
    ASSERT_TRUE(output.finished);
    if (turn > 0) {
      EXPECT_GE(output.usage.cached_tokens, (kChunks + turn - 1) * kChunkTokens) << turn;
    }
    prompt = Continued(std::move(prompt), turn, 1);
  }
  EXPECT_FALSE(h.Read(of_a.back()).finished);
  of_a.clear();
  h.RunUntilIdle();
  h.CheckIdle();
}

}  // namespace
}  // namespace refrain::engine
