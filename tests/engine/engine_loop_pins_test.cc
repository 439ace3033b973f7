// Requests that are too large for what pins leave of the cache. Operators cannot pin so much
// (PrefixPins); the loop relies on nobody for coming to rest.

#include <gmock/gmock.h>
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
using ::testing::HasSubstr;

// Eight chunks of 16 tokens, two of them pinned.
class EngineLoopPinsTest : public ::testing::TestWithParam<int> {
 protected:
  LoopOptions Options(Policy policy = Policy::kFcfs) const {
    return {.num_chunks = 8, .max_sequences = 2, .max_in_flight = GetParam(), .policy = policy};
  }

  static void PinTwoChunks(LoopHarness* h) {
    h->Run(TokenRequest(Prompt(32), 1));
    std::vector<TokenId> ids;
    for (const int32_t id : Prompt(32)) ids.push_back(TokenId{id});
    ASSERT_EQ(h->cache->Pin({}, {.ids = ids, .positions = {}}), 32);
  }
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineLoopPinsTest, ::testing::Values(1, 2));

// Each would take the other's chunks, in turns, and get no further than the last one that is free.
TEST_P(EngineLoopPinsTest, RequestsOfTwoTenantsThatDoNotFitAreBothRefused) {
  LoopHarness h(Options());
  PinTwoChunks(&h);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const int32_t seed : {5, 6}) {
    Request request = TokenRequest(Prompt(100, seed), 4);
    request.tenant = std::to_string(seed);
    streams.push_back(h.Submit(request));
  }
  ASSERT_NO_FATAL_FAILURE(h.RunUntilIdle());
  for (const auto& stream : streams) {
    const absl::Status status = h.Read(stream).status;
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;  // no overload, which passes
  }
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
}

// The text tells the sizes: of what is not pinned, that which the request has itself included.
TEST_P(EngineLoopPinsTest, SaysHowMuchIsNotPinned) {
  LoopHarness h(Options());
  PinTwoChunks(&h);
  const std::string text = " tokens do not fit into the 6 chunks of 16 tokens";
  const absl::Status at_once = h.Run(TokenRequest(Prompt(100, 5), 4)).status;
  EXPECT_THAT(std::string(at_once.message()), HasSubstr("the request's 100" + text)) << at_once;
  Request grows = TokenRequest(Prompt(80, 6), 40);
  grows.stop.ignore_eos = true;
  const absl::Status later = h.Run(grows).status;
  EXPECT_TRUE(absl::IsFailedPrecondition(later)) << later;
  EXPECT_THAT(std::string(later.message()), HasSubstr("the request's 97" + text)) << later;
}

// All that is free holds the beginning of the urgent one, which lacks a chunk for the rest.
TEST_P(EngineLoopPinsTest, RefusesTheRequestThatDoesNotFitNotAnOlderOneThatDoes) {
  LoopHarness h(Options(Policy::kPriority));
  PinTwoChunks(&h);
  h.Run(TokenRequest(Prompt(96, 5), 0));
  Request small = TokenRequest(Prompt(10, 6), 3);
  small.priority = 1;
  const auto small_stream = h.Submit(small);
  const auto large_stream = h.Submit(TokenRequest(Prompt(100, 5), 4));
  h.RunUntilIdle();
  EXPECT_TRUE(absl::IsFailedPrecondition(h.Read(large_stream).status));
  EXPECT_EQ(h.Read(small_stream).status, absl::OkStatus());
}

// A pin is no company: who waits for pinned chunks that nobody uses overtakes nobody for them.
TEST_P(EngineLoopPinsTest, OnlyWhatRunsBringsRequestsTogether) {
  std::vector<bool> shares;
  LoopOptions options = Options();
  options.num_chunks = 16;
  options.max_sequences = 1;
  options.planner = [&](const SchedulerSnapshot& snapshot) {
    for (const WaitingEntry& entry : snapshot.waiting) shares.push_back(entry.shares_running);
    return Plan(snapshot);
  };
  LoopHarness h(options);
  PinTwoChunks(&h);
  for (const bool user_runs : {false, true}) {
    const auto running = h.Submit(TokenRequest(Prompt(40, user_runs ? 1 : 5), 30));
    for (int i = 0; i < 2; ++i) h.loop.Turn();
    const auto waiting = h.Submit(TokenRequest(Prompt(36), 1));
    shares.clear();
    for (int i = 0; i < 6; ++i) h.loop.Turn();
    EXPECT_GE(shares.size(), 4u);
    EXPECT_EQ(shares, std::vector<bool>(shares.size(), user_runs));
    h.RunUntilIdle();
  }
}

}  // namespace
}  // namespace refrain::engine
