// What requests for many choices take while they wait.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::TokenRequest;

constexpr int32_t kRequests = 1000, kChoices = 128, kSlots = 8;

// Also where a prompt is one token, and its choices have nothing to share.
TEST(EngineLoopQueueTest, TheOtherChoicesWaitOnlyOnceTheFirstRuns) {
  for (const std::vector<int32_t>& prompt : {std::vector<int32_t>{5}, {5, 6}}) {
    size_t most_waiting = 0;
    LoopHarness h({.max_sequences = kSlots,
                   .queued_requests = kRequests,
                   .planner = [&](const SchedulerSnapshot& snapshot) {
                     most_waiting = std::max(most_waiting, snapshot.waiting.size());
                     return Plan(snapshot);
                   }});
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (int32_t i = 0; i < kRequests; ++i) {
      Request request = TokenRequest(prompt, 10);
      request.n = kChoices;
      streams.push_back(h.Submit(std::move(request)));
    }
    for (int i = 0; i < 5; ++i) h.loop.Turn();
    EXPECT_EQ(h.loop.stats().running_sequences, kSlots);
    EXPECT_LE(most_waiting, static_cast<size_t>(kRequests + kSlots * kChoices));
    streams.clear();
    h.RunUntilIdle();
    h.CheckIdle();
  }
}

}  // namespace
}  // namespace refrain::engine
