// Requests of several tenants in the engine loop: who waits how many steps for whom.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using testing::LoopHarness;
using testing::LoopOptions;
using testing::RequestOutput;
using testing::TokenRequest;

class EngineLoopFairnessTest : public ::testing::TestWithParam<Policy> {
 protected:
  std::shared_ptr<TokenStream> Submit(LoopHarness& harness, const std::string& tenant,
                                      int32_t first_token, int32_t max_tokens) {
    std::vector<int32_t> prompt(20, first_token);
    Request request = TokenRequest(std::move(prompt), max_tokens);
    request.tenant = tenant;
    request.stop.ignore_eos = true;
    return harness.Submit(std::move(request));
  }
};

// Eight slots, all of them and a queue of 192 are tenant a's, with answers of 100 tokens. Tenant
// b's one request of 20 prompt tokens and 5 generated ones: a step to free a slot, one for the
// prompt (the budget leaves 32 - 8 rows) and the first token, four for the others; and one of slack
// for the step in which it comes.
TEST_P(EngineLoopFairnessTest, OneTenantsQueueDelaysAnotherByTwoSteps) {
  LoopHarness harness(LoopOptions{.policy = GetParam()});
  std::vector<std::shared_ptr<TokenStream>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(Submit(harness, "a", 1 + i % 20, 100));
  for (int i = 0; i < 40; ++i) harness.loop.Turn();
  const auto single = Submit(harness, "b", 21, 5);
  RequestOutput output;
  int turns = 0;
  for (; turns < 1000 && !output.finished; ++turns) {
    harness.loop.Turn();
    ReadInto(*single, harness.tokenizer, &output);
  }
  EXPECT_TRUE(output.status.ok()) << output.status;
  EXPECT_EQ(output.usage.completion_tokens, 5);
  EXPECT_LE(turns, 2 + 5);
  // Who gave way has lost nothing.
  harness.RunUntilIdle();
  for (const auto& stream : crowd) {
    const RequestOutput other = harness.Read(stream);
    EXPECT_TRUE(other.status.ok()) << other.status;
    EXPECT_EQ(other.usage.completion_tokens, 100);
  }
  harness.CheckIdle();
}

// A cache of 48 chunks is full of tenant a's prompts of 100 tokens, which nobody shares, and their
// answers. Tenant b's prompt of 60 tokens: a step to free its chunks, three for the prompt (the
// budget leaves at least 32 - 8 rows), four more for the other tokens; and one of slack.
TEST_P(EngineLoopFairnessTest, AFullCacheDelaysAnotherByTwoSteps) {
  for (const int max_in_flight : {1, 2}) {
    LoopHarness harness(
        LoopOptions{.num_chunks = 48, .max_in_flight = max_in_flight, .policy = GetParam()});
    std::vector<std::shared_ptr<TokenStream>> crowd;
    for (int i = 0; i < 40; ++i) {
      Request request = TokenRequest(testing::Prompt(100, 2 + i), 60);
      request.tenant = "a";
      request.cache_salt = std::to_string(i);
      request.stop.ignore_eos = true;
      crowd.push_back(harness.Submit(std::move(request)));
    }
    for (int i = 0; i < 70; ++i) harness.loop.Turn();
    Request request = TokenRequest(testing::Prompt(60, 1), 5);
    request.tenant = "b";
    request.stop.ignore_eos = true;
    const auto single = harness.Submit(std::move(request));
    RequestOutput output;
    int turns = 0;
    for (; turns < 1000 && !output.finished; ++turns) {
      harness.loop.Turn();
      ReadInto(*single, harness.tokenizer, &output);
    }
    EXPECT_TRUE(output.status.ok()) << output.status;
    EXPECT_LE(turns, 2 + 3 + 4 + max_in_flight - 1);
    harness.RunUntilIdle();
    for (const auto& stream : crowd) {
      const RequestOutput other = harness.Read(stream);
      EXPECT_TRUE(other.status.ok()) << other.status;
      EXPECT_EQ(other.usage.completion_tokens, 60);
    }
    harness.CheckIdle();
  }
}

// Both have more than enough waiting; b weighs three times a: it gets three times the tokens.
TEST_P(EngineLoopFairnessTest, WeightsDivideTheTokens) {
  LoopHarness harness(LoopOptions{.policy = GetParam()});
  std::vector<std::shared_ptr<TokenStream>> of_a, of_b;
  for (int i = 0; i < 200; ++i) {
    for (const bool heavy : {false, true}) {
      Request request = TokenRequest(std::vector<int32_t>(20, 1 + i % 20), 20);
      request.tenant = heavy ? "b" : "a";
      request.tenant_weight = heavy ? 3 : 1;
      request.cache_salt = request.tenant + std::to_string(i);  // nothing is shared
      request.stop.ignore_eos = true;
      (heavy ? of_b : of_a).push_back(harness.Submit(std::move(request)));
    }
  }
  for (int i = 0; i < 400; ++i) harness.loop.Turn();
  const auto tokens = [&](const std::vector<std::shared_ptr<TokenStream>>& streams) {
    int64_t sum = 0;
    for (const auto& stream : streams) sum += harness.Read(stream).usage.completion_tokens;
    return static_cast<double>(sum);
  };
  const double ratio = tokens(of_b) / tokens(of_a);
  EXPECT_GT(ratio, 2.5);
  EXPECT_LT(ratio, 3.5);
  harness.RunUntilIdle();
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineLoopFairnessTest,
                         ::testing::Values(Policy::kFcfs, Policy::kLongestPrefix,
                                           Policy::kPriority));

}  // namespace
}  // namespace refrain::engine
