// What requests for many choices take while they wait.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
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

// With one slot. `make` makes the request of each number.
size_t BytesOfARequestThatWaits(const std::function<Request(int32_t)>& make) {
  LoopHarness h({.max_sequences = 1, .queued_requests = kRequests});
  std::vector<std::shared_ptr<TokenStream>> streams;
  streams.reserve(kRequests);
  const size_t before = testing::AllocatedBytes();
  for (int32_t i = 0; i < kRequests; ++i) streams.push_back(h.Submit(make(i)));
  h.loop.Turn();
  return (testing::AllocatedBytes() - before) / kRequests;
}

size_t BytesOfARequestThatWaits(int32_t n) {
  return BytesOfARequestThatWaits([n](int32_t) {
    Request request = TokenRequest({5, 6}, 10);
    request.n = n;
    return request;
  });
}

// No limit counts them.
TEST(EngineLoopQueueTest, ChoicesOfRequestsThatWaitTakeNoMemory) {
  BytesOfARequestThatWaits(1);  // what is there for good afterwards
  const size_t of_one = BytesOfARequestThatWaits(1);
  EXPECT_LE(BytesOfARequestThatWaits(kChoices), of_one + of_one / 4)
      << of_one << " with one choice";
}

// Their bodies count no more.
TEST(EngineLoopQueueTest, WhatIsCutOffThePromptOfARequestThatWaitsTakesNoMemory) {
  BytesOfARequestThatWaits(1);
  const size_t of_short = BytesOfARequestThatWaits(1);
  const size_t of_long = BytesOfARequestThatWaits([](int32_t) {
    Request request = TokenRequest(std::vector<int32_t>(20'000, 5), 10);
    request.keep_prompt_tokens = 2;
    return request;
  });
  EXPECT_LE(of_long, of_short + of_short / 4) << of_short << " with a short prompt";
}

TEST(EngineLoopQueueTest, TheStopStringsOfARequestThatWaitsTakeTheirBytes) {
  constexpr size_t kBytes = 2048;
  constexpr size_t kStrings = 16;
  BytesOfARequestThatWaits(1);
  const size_t without = BytesOfARequestThatWaits(1);
  const size_t with = BytesOfARequestThatWaits([](int32_t i) {
    Request request = TokenRequest({5, 6}, 10);
    std::vector<std::string> strings;
    for (size_t k = 0; k < kStrings; ++k) {
      strings.push_back(std::to_string(i * kStrings + k) + std::string(kBytes, 'x'));
    }
    request.stop.stop = std::move(strings);
    return request;
  });
  EXPECT_LE(with, without + 2 * kStrings * kBytes) << without << " without any";
}

}  // namespace
}  // namespace refrain::engine
