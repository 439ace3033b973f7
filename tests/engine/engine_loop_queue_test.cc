// What requests for many choices take while they wait.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/support/allocated_bytes.h"
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

// With one slot.
size_t BytesOfARequestThatWaits(int32_t n) {
  LoopHarness h({.max_sequences = 1, .queued_requests = kRequests});
  std::vector<std::shared_ptr<TokenStream>> streams;
  streams.reserve(kRequests);
  const size_t before = testing::AllocatedBytes();
  for (int32_t i = 0; i < kRequests; ++i) {
    Request request = TokenRequest({5, 6}, 10);
    request.n = n;
    streams.push_back(h.Submit(std::move(request)));
  }
  h.loop.Turn();
  return (testing::AllocatedBytes() - before) / kRequests;
}

// No limit counts them.
TEST(EngineLoopQueueTest, ChoicesOfRequestsThatWaitTakeNoMemory) {
  BytesOfARequestThatWaits(1);  // what is there for good afterwards
  const size_t of_one = BytesOfARequestThatWaits(1);
  EXPECT_LE(BytesOfARequestThatWaits(kChoices), of_one + of_one / 4)
      << of_one << " with one choice";
}

}  // namespace
}  // namespace refrain::engine
