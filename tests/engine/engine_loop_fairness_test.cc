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
    const std::vector<int32_t> prompt(20, first_token);
    Request request = TokenRequest(prompt, max_tokens);
    request.tenant = tenant;
    request.stop.ignore_eos = true;
    return harness.Submit(std::move(request));
  }
};

// Turns until `stream` has ended.
int TurnsUntilFinished(LoopHarness& harness, TokenStream& stream, RequestOutput* output) {
  int turns = 0;
  for (; turns < 1000 && !output->finished; ++turns) {
    harness.loop.Turn();
    ReadInto(stream, harness.tokenizer, output);
  }
  return turns;
}

// Who gave way has lost nothing.
void ExpectAllGetTheirTokens(LoopHarness& harness, int32_t tokens,
                             const std::vector<std::shared_ptr<TokenStream>>& crowd) {
  harness.RunUntilIdle();
  for (const auto& stream : crowd) {
    const RequestOutput other = harness.Read(stream);
    EXPECT_TRUE(other.status.ok()) << other.status;
    EXPECT_EQ(other.usage.completion_tokens, tokens);
  }
  harness.CheckIdle();
}

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
  EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 2 + 5);
  EXPECT_TRUE(output.status.ok()) << output.status;
  EXPECT_EQ(output.usage.completion_tokens, 5);
  ExpectAllGetTheirTokens(harness, 100, crowd);
}

// Eight tenants have a slot each, with answers of 300 tokens. A ninth waits until the first of them
// has had its turn of 128 tokens: some 90 steps from when it comes, not the 260 until one ends.
TEST_P(EngineLoopFairnessTest, MoreTenantsThanSlotsTakeTurns) {
  LoopHarness harness(LoopOptions{.policy = GetParam()});
  std::vector<std::shared_ptr<TokenStream>> crowd;
  for (int i = 0; i < 8; ++i) crowd.push_back(Submit(harness, std::string(1, 'a' + i), 1 + i, 300));
  for (int i = 0; i < 40; ++i) harness.loop.Turn();
  const auto single = Submit(harness, "z", 21, 5);
  RequestOutput output;
  EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 128 - 40 + 2 + 5 + 8);
  EXPECT_TRUE(output.status.ok()) << output.status;
  EXPECT_EQ(output.usage.completion_tokens, 5);
  ExpectAllGetTheirTokens(harness, 300, crowd);
}

// Without a prefix cache a choice that ends hands its place to the next one: the eight have one
// turn together.
TEST_P(EngineLoopFairnessTest, ChoicesThatFollowEachOtherHaveOneTurn) {
  LoopHarness harness({.max_sequences = 1, .prefix_cache = false, .policy = GetParam()});
  Request choices = TokenRequest(std::vector<int32_t>(20, 1), 50);
  choices.tenant = "a";
  choices.n = 8;
  const auto crowd = harness.Submit(choices);
  for (int i = 0; i < 5; ++i) harness.loop.Turn();
  const auto single = Submit(harness, "z", 21, 5);
  RequestOutput output;
  EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 128 - 5 + 2 + 5 + 8);
  EXPECT_EQ(output.usage.completion_tokens, 5);
  ExpectAllGetTheirTokens(harness, 8 * 50, {crowd});
}

TEST(EngineLoopHandOverTest, ChoicesThatFollowEachOtherOvertakeNoneMoreUrgent) {
  LoopHarness harness({.max_sequences = 1, .prefix_cache = false, .policy = Policy::kPriority});
  Request choices = TokenRequest(std::vector<int32_t>(20, 1), 50);
  choices.n = 8;
  choices.priority = 1;
  const auto crowd = harness.Submit(choices);
  for (int i = 0; i < 5; ++i) harness.loop.Turn();
  const auto urgent = harness.Submit(TokenRequest(std::vector<int32_t>(20, 2), 5));
  RequestOutput output;
  EXPECT_LE(TurnsUntilFinished(harness, *urgent, &output), 50 + 5 + 2);
  ExpectAllGetTheirTokens(harness, 8 * 50, {crowd});
}

// Tenant a of low weight decodes three long answers: its tokens weigh a hundredfold, so it runs
// ahead of tenant b, which has more than enough waiting. Tenant c is not put behind b for that: its
// request takes as long as in the test above.
TEST_P(EngineLoopFairnessTest, ATenantOfLowWeightThatRunsAheadDelaysNobody) {
  LoopHarness harness(LoopOptions{.policy = GetParam()});
  std::vector<std::shared_ptr<TokenStream>> crowd;
  for (int i = 0; i < 3; ++i) {
    Request request = TokenRequest(std::vector<int32_t>(20, 21 + i), 400);
    request.tenant = "a";
    request.tenant_weight = 0.01;
    crowd.push_back(harness.Submit(std::move(request)));
  }
  harness.loop.Turn();
  for (int i = 0; i < 200; ++i) crowd.push_back(Submit(harness, "b", 1 + i % 20, 100));
  for (int i = 0; i < 150; ++i) harness.loop.Turn();
  const auto single = Submit(harness, "c", 0, 5);
  RequestOutput output;
  EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 2 + 5);
  EXPECT_TRUE(output.status.ok()) << output.status;
  harness.RunUntilIdle();
  harness.CheckIdle();
}

// Tenant a of low weight has begun a prompt of 400 tokens when b comes with more than enough of
// 300: it is b's turn for thousands of tokens. Tenant c sends a's prompt: the rest of it takes 16
// steps of at least 32 - 8 rows in c's turns; then one for a slot, one for c's own row and one of
// slack.
TEST_P(EngineLoopFairnessTest, ASharedPrefixIsComputedInTheTurnsOfWhoIsServedLeast) {
  LoopHarness harness(LoopOptions{.policy = GetParam()});
  const auto submit = [&](const std::string& tenant, double weight,
                          const std::vector<int32_t>& prompt) {
    Request request = TokenRequest(prompt, 1);
    request.tenant = tenant;
    request.tenant_weight = weight;
    return harness.Submit(std::move(request));
  };
  const auto of_a = submit("a", 0.01, testing::Prompt(400, 5));
  harness.loop.Turn();
  std::vector<std::shared_ptr<TokenStream>> crowd;
  for (int32_t i = 0; i < 60; ++i) {
    std::vector<int32_t> prompt = testing::Prompt(300, i);
    prompt[0] = i % 24;  // what they share is short
    prompt[1] = i / 24;
    crowd.push_back(submit("b", 1, prompt));
  }
  for (int i = 0; i < 20; ++i) harness.loop.Turn();
  const auto single = submit("c", 1, testing::Prompt(400, 5));
  harness.loop.Turn();
  EXPECT_EQ(harness.loop.held_sequences(), 1u);
  RequestOutput output;
  EXPECT_LE(1 + TurnsUntilFinished(harness, *single, &output), 16 + 3);
  EXPECT_TRUE(output.status.ok()) << output.status;
  EXPECT_EQ(output.usage.cached_tokens, 399);
  harness.RunUntilIdle();
  EXPECT_TRUE(harness.Read(of_a).status.ok());
  harness.CheckIdle();
}

// One that generates all of its tokens, whatever it meets.
std::shared_ptr<TokenStream> SubmitLong(LoopHarness& harness, std::string tenant, int32_t prompt,
                                        int32_t prompt_tokens, int32_t tokens, int32_t n = 1) {
  Request request = TokenRequest(testing::Prompt(prompt_tokens, prompt), tokens);
  request.n = n;
  request.tenant = std::move(tenant);
  request.cache_salt = std::to_string(prompt);
  request.stop.ignore_eos = true;
  return harness.Submit(std::move(request));
}

// Tenant a's, of 60 tokens each, which share nothing with one another.
std::vector<std::shared_ptr<TokenStream>> SubmitCrowd(LoopHarness& harness, int requests,
                                                      int32_t prompt_tokens, int32_t n) {
  std::vector<std::shared_ptr<TokenStream>> crowd;
  for (int i = 0; i < requests; ++i) {
    crowd.push_back(SubmitLong(harness, "a", 2 + i, prompt_tokens, 60, n));
  }
  return crowd;
}

// A cache of 48 chunks is full of tenant a's prompts of 100 tokens, which nobody shares, and their
// answers. Tenant b's prompt of 60 tokens: a step to free its chunks, three for the prompt (the
// budget leaves at least 32 - 8 rows), four more for the other tokens; and one of slack.
TEST_P(EngineLoopFairnessTest, AFullCacheDelaysAnotherByTwoSteps) {
  for (const int max_in_flight : {1, 2}) {
    LoopHarness harness(
        LoopOptions{.num_chunks = 48, .max_in_flight = max_in_flight, .policy = GetParam()});
    const std::vector<std::shared_ptr<TokenStream>> crowd = SubmitCrowd(harness, 40, 100, 1);
    for (int i = 0; i < 70; ++i) harness.loop.Turn();
    const auto single = SubmitLong(harness, "b", 1, 60, 5);
    RequestOutput output;
    EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 2 + 3 + 4 + max_in_flight - 1);
    EXPECT_TRUE(output.status.ok()) << output.status;
    ExpectAllGetTheirTokens(harness, 60, crowd);
  }
}

// Tenant a's answers share six chunks of a full cache and have one or two each. They came one by
// one, so that for some steps in a row one or two of them need another chunk, and take it from
// others. Whenever tenant b comes, it gets what it needs beside that.
TEST_P(EngineLoopFairnessTest, ACacheFullOfGrowingAnswersDelaysAnotherByTwoSteps) {
  for (int turns = 30; turns < 44; turns += 2) {
    LoopHarness harness(LoopOptions{
        .num_chunks = 54, .max_sequences = 64, .step_token_budget = 128, .policy = GetParam()});
    std::vector<std::shared_ptr<TokenStream>> crowd;
    for (int i = 0; i < turns; ++i) {
      Request request = TokenRequest(testing::Prompt(96, 2), 60);
      request.tenant = "a";
      request.sampling.temperature = 1;  // the answers are not the same
      request.sampling.seed = static_cast<uint64_t>(i);
      request.stop.ignore_eos = true;
      crowd.push_back(harness.Submit(std::move(request)));
      harness.loop.Turn();
    }
    const auto single = SubmitLong(harness, "b", 1, 20, 5);
    RequestOutput output;
    EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 2 + 5) << turns;
    EXPECT_TRUE(output.status.ok()) << output.status;
    ExpectAllGetTheirTokens(harness, 60, crowd);
  }
}

// As above, but a's sequences come in pairs that share a prompt of 190 tokens: a chunk each is all
// that one of a pair gives back alone.
TEST_P(EngineLoopFairnessTest, ACacheFullOfSharedPromptsDelaysAnotherByTwoSteps) {
  for (const int max_in_flight : {1, 2}) {
    LoopHarness harness(
        LoopOptions{.num_chunks = 48, .max_in_flight = max_in_flight, .policy = GetParam()});
    const std::vector<std::shared_ptr<TokenStream>> crowd = SubmitCrowd(harness, 20, 190, 2);
    for (int i = 0; i < 50; ++i) harness.loop.Turn();
    const auto single = SubmitLong(harness, "b", 1, 300, 5);
    RequestOutput output;
    // Two steps until it is admitted, 300 tokens in steps of 32 - 8 at the least, four more tokens.
    EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 2 + 13 + 4 + max_in_flight - 1);
    EXPECT_TRUE(output.status.ok()) << output.status;
    ExpectAllGetTheirTokens(harness, 2 * 60, crowd);
  }
}

// Prompts of tenants a and b need the last chunks while b's answers take some, too. a has less than
// its part, so its prompt does not give way, wherever in a step the chunks end: five steps for it,
// beside b's prompt, and four for the other tokens.
TEST_P(EngineLoopFairnessTest, ChunksThatEndInAPrefillAreTakenFromWhoHasMore) {
  for (int num_chunks = 122; num_chunks < 135; ++num_chunks) {  // both prompts fit at first
    LoopHarness harness(LoopOptions{.num_chunks = num_chunks,
                                    .chunk_tokens = 4,
                                    .step_token_budget = 64,
                                    .policy = GetParam()});
    std::vector<std::shared_ptr<TokenStream>> others = {SubmitLong(harness, "a", 1, 8, 60)};
    for (int i = 0; i < 5; ++i) others.push_back(SubmitLong(harness, "b", 10 + i, 8, 60));
    harness.loop.Turn();
    const auto long_prompt = SubmitLong(harness, "b", 3, 200, 2);
    for (int i = 0; i < 2; ++i) harness.loop.Turn();
    const auto single = SubmitLong(harness, "a", 4, 200, 5);
    RequestOutput output;
    EXPECT_LE(TurnsUntilFinished(harness, *single, &output), 5 + 4) << num_chunks;
    EXPECT_TRUE(output.status.ok()) << output.status;
    ExpectAllGetTheirTokens(harness, 60, others);
    EXPECT_TRUE(harness.Read(long_prompt).status.ok());
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
