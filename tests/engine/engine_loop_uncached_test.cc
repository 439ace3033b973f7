// Where nothing stays in the cache the choices of a request share its prompt all the same, also
// those that were preempted, whose cache is gone.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

Request Choices(int32_t prompt_tokens, int32_t max_tokens, int32_t n) {
  Request request = TokenRequest(Prompt(prompt_tokens), max_tokens);
  request.n = n;
  request.sampling.temperature = 1;
  request.sampling.seed = 1;
  return request;
}

// An older request outgrows three choices. Once it has ended one that was preempted computes the
// prompt again; there is room for the next, which needs no more than its own answer, and for a
// small request behind it.
TEST(EngineLoopUncachedTest, WhoWaitsSeesThatAnotherChoiceHasThePromptAgain) {
  LoopHarness h({.num_chunks = 40, .step_token_budget = 64, .prefix_cache = false});
  const auto older = h.Submit(TokenRequest(Prompt(20, 3), 330));
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  const auto choices = h.Submit(Choices(300, 150, 3));
  const auto beside = h.Submit(TokenRequest(Prompt(16, 9), 30));
  RequestOutput of_older, of_choices, of_small;
  while (!of_older.finished && h.loop.Turn()) testing::ReadInto(*older, h.tokenizer, &of_older);
  EXPECT_GT(h.loop.stats().preemptions_total, 1);
  const auto small = h.Submit(TokenRequest(Prompt(16, 9), 1));
  const auto ended = [&] {
    testing::ReadInto(*choices, h.tokenizer, &of_choices);
    int count = 0;
    for (const auto& [index, choice] : of_choices.choices) count += choice.ends.empty() ? 0 : 1;
    return count;
  };
  const int ended_before = ended();
  EXPECT_LT(ended_before, 2);
  while (!of_small.finished && h.loop.Turn()) testing::ReadInto(*small, h.tokenizer, &of_small);
  EXPECT_EQ(ended(), ended_before);
  h.RunUntilIdle();
  h.CheckIdle();
}

// Three older requests outgrow four choices and end together: there would be room for all four
// prompts.
TEST(EngineLoopUncachedTest, ChoicesThatLostTheirPromptComputeItOnce) {
  for (const int max_in_flight : {1, 2}) {
    RequestOutput outputs[2];
    int64_t computed[2];
    for (const bool prefix_cache : {true, false}) {
      LoopHarness h({.num_chunks = 60,
                     .step_token_budget = 1024,
                     .max_in_flight = max_in_flight,
                     .prefix_cache = prefix_cache});
      std::vector<std::shared_ptr<TokenStream>> older;
      for (int32_t i = 0; i < 3; ++i)
        older.push_back(h.Submit(TokenRequest(Prompt(20, 3 + i), 300)));
      for (int i = 0; i < 60; ++i) h.loop.Turn();
      outputs[prefix_cache] = h.Run(Choices(200, 200, 4));
      EXPECT_GT(h.loop.stats().preemptions_total, 1);
      computed[prefix_cache] = h.loop.stats().computed_prompt_tokens_total;
      h.CheckIdle();
    }
    // Once at first, and once more. The rows of the last token are each choice's own.
    EXPECT_LE(computed[false], 3 * 20 + 2 * (200 + 3)) << computed[true] << " with the cache";
    for (const auto& [index, choice] : outputs[true].choices) {
      EXPECT_EQ(outputs[false].choices.at(index).tokens, choice.tokens);
    }
  }
}

}  // namespace
}  // namespace refrain::engine
