// What stays in the cache where a request asks for it (Request::keep_cached).

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::FakeKvCell;
using ::refrain::testing::LetterVocabulary;
using ::refrain::testing::LoopHarness;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

// A quarter of the pool, ten chunks, is for such prompts. Each of eight choices has its own copy of
// the chunk in which the prompt ends: one of them is enough.
TEST(EngineLoopKeepingTest, ARequestsChoicesKeepItsPromptOnce) {
  LoopHarness h({.num_chunks = 40});
  for (const int32_t seed : {2, 3}) {
    Request kept = TokenRequest(Prompt(16, seed), 0);
    kept.keep_cached = true;
    h.Run(kept);
  }
  Request many = TokenRequest(Prompt(40, 4), 4);
  many.keep_cached = true;
  many.n = 8;
  many.sampling.temperature = 1;
  many.sampling.seed = 11;
  EXPECT_EQ(h.Run(many).choices.size(), 8u);
  for (int32_t seed = 5; seed < 20; ++seed) h.Run(TokenRequest(Prompt(60, seed), 4));
  for (const int32_t seed : {2, 3}) {
    EXPECT_EQ(h.Run(TokenRequest(Prompt(16, seed), 1)).usage.cached_tokens, 15) << seed;
  }
  EXPECT_EQ(h.Run(TokenRequest(Prompt(40, 4), 1)).usage.cached_tokens, 39);
  h.CheckIdle();
}

// Scenario: of two choices the first ends at once. An older request grows until the other makes way
// and nothing of the prompt is left, so that it computes it again.
TEST(EngineLoopKeepingTest, KeepsAPromptThatItsLastChoiceComputesAgain) {
  constexpr size_t kPrompt = 40;
  constexpr int32_t kEnd = 5;
  LoopHarness h({.num_chunks = 16, .eviction = "lru"});
  h.runner.set_logits([](const std::vector<FakeKvCell>& history) {
    const bool is_choice = history.front().token == Prompt(1, 4).front();
    std::vector<float> logits(LetterVocabulary().size(), -100.0f);
    if (is_choice && history.size() == kPrompt) {
      logits[1] = logits[2] = 0;
    } else if (is_choice && history[kPrompt].token == 2) {
      logits[kEnd] = 0;
    } else {
      logits[7] = 0;
    }
    return logits;
  });
  const auto older = h.Submit(TokenRequest(Prompt(170, 2), 80));
  for (int i = 0; i < 8; ++i) h.loop.Turn();
  Request two = TokenRequest(Prompt(kPrompt, 4), 40);
  two.keep_cached = true;
  two.n = 2;
  two.sampling.temperature = 1;
  two.sampling.seed = 1;
  two.stop.stop_token_ids = {TokenId{kEnd}};
  const auto stream = h.Submit(std::move(two));
  h.RunUntilIdle();
  const RequestOutput output = h.Read(stream);
  EXPECT_EQ(output.choices.at(0).tokens.size(), 1u);
  EXPECT_EQ(output.choices.at(1).tokens.size(), 40u);
  EXPECT_GE(h.loop.stats().preemptions_total, 1);
  for (int32_t seed = 5; seed < 12; ++seed) h.Run(TokenRequest(Prompt(60, seed), 4));
  EXPECT_EQ(h.Run(TokenRequest(Prompt(kPrompt, 4), 1)).usage.cached_tokens, 39);
  h.CheckIdle();
}

}  // namespace
}  // namespace refrain::engine
