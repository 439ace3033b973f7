// What stays in the cache where a request asks for it (Request::keep_cached).

#include <gtest/gtest.h>

#include <cstdint>

#include "engine/engine_loop.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::Prompt;
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

}  // namespace
}  // namespace refrain::engine
