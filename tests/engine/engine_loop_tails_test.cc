// What is left of a prompt behind its last whole chunk: equal prompts that wait share that, too.
// And what is left behind all that is found of it: that alone is computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/engine/thirty_two_requests.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

constexpr int32_t kWholeTokens = 31 * 64;  // of 2,047

LoopOptions OptionsOf(int max_in_flight, int32_t budget) {
  LoopOptions options = OptionsOf32(max_in_flight);
  options.num_chunks = 200;
  options.chunk_tokens = 64;
  options.max_sequences = 48;
  options.step_token_budget = budget;
  return options;
}

class EngineLoopTailsTest : public ::testing::TestWithParam<int> {
 protected:
  LoopOptions Options(int32_t budget) const { return OptionsOf(GetParam(), budget); }
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineLoopTailsTest, ::testing::Values(1, 2));

// With borders of steps before, in and behind the tail, beside eight that decode.
TEST_P(EngineLoopTailsTest, EqualPromptsAreComputedOnceWhereverAStepEnds) {
  for (const int32_t length : {2, 3, 40, 64, 127, 2047, 2049, 2050}) {
    const auto alone = Alone(TokenRequest(Prompt(length), 4)).choices.at(0).tokens;
    for (const int32_t budget : {56, 256, 300, 1000, 1984, 1992, 2028, 2048}) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, budget " << budget);
      LoopHarness h(Options(budget));
      std::vector<std::shared_ptr<TokenStream>> decoding, streams;
      for (int32_t i = 0; i < 8; ++i) {
        decoding.push_back(h.Submit(TokenRequest(Prompt(5, 9 + i), 100)));
      }
      for (int i = 0; i < 4; ++i) h.loop.Turn();
      const int64_t before = h.loop.stats().computed_prompt_tokens_total;
      for (int i = 0; i < 32; ++i) streams.push_back(h.Submit(TokenRequest(Prompt(length), 4)));
      h.RunUntilIdle();
      EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total - before, length + 31);
      for (const auto& stream : streams) {
        EXPECT_EQ(h.Read(stream).choices.at(0).tokens, alone);
      }
      h.CheckIdle();
    }
  }
}

// The first step ends with the last whole chunk. Who waits for the same prompt waits for the rest,
// which is in the next step; whose prompt goes on where that one ends begins beside it.
TEST(EngineLoopTailTest, WhosePromptIsLongerDoesNotWaitForIt) {
  LoopHarness h(OptionsOf(/*max_in_flight=*/1, kWholeTokens));
  const auto producer = h.Submit(TokenRequest(Prompt(2047), 4));
  const auto equal = h.Submit(TokenRequest(Prompt(2047), 4));
  const auto longer = h.Submit(TokenRequest(Prompt(2100), 4));
  h.loop.Turn();
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, kWholeTokens);
  EXPECT_EQ(h.loop.held_sequences(), 1u);
  h.loop.Turn();
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 2047 + 2100 - kWholeTokens);
  EXPECT_EQ(h.loop.held_sequences(), 0u);
  h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 3);
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 2047 + 2100 - kWholeTokens + 1);
  h.RunUntilIdle();
  for (const auto& stream : {producer, equal, longer}) {
    EXPECT_EQ(h.Read(stream).usage.completion_tokens, 4);
  }
  h.CheckIdle();
}

// 31 wait for the rest of the prompt as its producer goes away: one of them computes it.
TEST_P(EngineLoopTailsTest, OneThatWaitsTakesOver) {
  using GoAway = std::function<void(LoopHarness&, TokenStream&)>;
  const std::pair<const char*, GoAway> ways[] = {
      {"cancelled", [](LoopHarness&, TokenStream& stream) { stream.Cancel(); }},
      {"late", [](LoopHarness& h, TokenStream&) { h.clock.Advance(std::chrono::seconds(11)); }},
      {"failed", [](LoopHarness& h, TokenStream&) {
         h.runner.FailStep(h.runner.launched() + 1, absl::UnavailableError("once"));
       }}};
  const auto alone = Alone(TokenRequest(Prompt(2047), 4)).choices.at(0).tokens;
  for (const auto& [name, go_away] : ways) {
    SCOPED_TRACE(name);
    LoopHarness h(Options(kWholeTokens / 4));
    Request first = TokenRequest(Prompt(2047), 4);
    first.timeout_s = 10;
    std::vector<std::shared_ptr<TokenStream>> streams = {h.Submit(first)};
    for (int i = 0; i < 31; ++i) streams.push_back(h.Submit(TokenRequest(Prompt(2047), 4)));
    while (h.loop.stats().computed_prompt_tokens_total < kWholeTokens) h.loop.Turn();
    EXPECT_EQ(h.loop.held_sequences(), 31u);
    go_away(h, *streams[0]);
    h.RunUntilIdle();
    // With two steps in flight the producer's last one comes to nothing.
    EXPECT_LE(h.loop.stats().computed_prompt_tokens_total, 2047 + 31 + 63);
    EXPECT_GE(h.loop.stats().computed_prompt_tokens_total, 2047 + 30);
    for (size_t i = 1; i < streams.size(); ++i) {
      EXPECT_EQ(h.Read(streams[i]).choices.at(0).tokens, alone);
    }
    h.CheckIdle();
  }
}

// Nothing of the prompt is cached, a token, half of it, all but one token, all of it.
TEST_P(EngineLoopTailsTest, TheFirstTokenComesWhenTheUnmatchedRestIsComputed) {
  for (const int32_t matched : {0, 1, 50, 99, 100}) {
    LoopHarness h(Options(256));
    if (matched > 0) {
      std::vector<int32_t> begin = Prompt(100);
      begin.resize(static_cast<size_t>(matched));
      h.Run(TokenRequest(begin, 1));
    }
    const int64_t before = h.runner.rows();
    const RequestOutput output = h.Run(TokenRequest(Prompt(100), 1));
    EXPECT_EQ(output.choices.at(0).tokens.size(), 1u);
    // The last token has to be computed: the first new one is chosen from its logits.
    const int32_t cached = std::min(matched, 99);
    EXPECT_EQ(output.usage.cached_tokens, cached);
    EXPECT_EQ(h.runner.rows() - before, 100 - cached) << matched;
    h.CheckIdle();
  }
}

}  // namespace
}  // namespace refrain::engine
