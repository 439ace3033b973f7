// What EngineLoop::health says of a thread that does not get on.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using namespace std::chrono_literals;

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::TokenRequest;

LoopOptions StalledAfter(double seconds) {
  LoopOptions options;
  options.stall_s = seconds;
  return options;
}

absl::Status Stalled(int seconds) {
  return absl::UnavailableError("the engine has not finished a step for " +
                                std::to_string(seconds) + " s");
}

// A GPU hangs, and comes back. What came meanwhile is not refused.
TEST(EngineLoopStallTest, AStepThatTakesTooLongIsToldUntilItEnds) {
  LoopHarness h(StalledAfter(300));
  std::shared_ptr<TokenStream> late;
  h.runner.before_step = [&](const StepBatch&) {
    EXPECT_EQ(h.loop.health(), absl::OkStatus()) << h.runner.launched();
    if (h.runner.launched() != 3) return h.clock.Advance(200s);
    h.clock.Advance(299s);
    EXPECT_EQ(h.loop.health(), absl::OkStatus());
    h.clock.Advance(1s);
    EXPECT_EQ(h.loop.health(), Stalled(300));
    h.clock.Advance(12.5s);
    EXPECT_EQ(h.loop.health(), Stalled(312));
    late = h.Submit(TokenRequest(Prompt(9, 7), 5));
  };
  EXPECT_EQ(h.Run(TokenRequest(Prompt(9), 10)).choices.at(0).tokens.size(), 10u);
  EXPECT_EQ(h.Read(late).choices.at(0).tokens.size(), 5u);
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  h.CheckIdle();
}

// Nor is the time in which it had nothing to do part of the next step.
TEST(EngineLoopStallTest, AnIdleEngineIsNeverStalled) {
  LoopHarness h(StalledAfter(300));
  h.clock.Advance(1000s);
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  int steps = 0;
  h.runner.before_step = [&](const StepBatch&) {
    ++steps;
    EXPECT_EQ(h.loop.health(), absl::OkStatus());
  };
  for (int turn = 1; turn <= 3; ++turn) {
    h.Run(TokenRequest(Prompt(9), 2));
    EXPECT_EQ(steps, 2 * turn);
    h.clock.Advance(1000s);
    EXPECT_EQ(h.loop.health(), absl::OkStatus());
  }
}

TEST(EngineLoopStallTest, WithoutALimitNothingIsAStall) {
  LoopHarness h(StalledAfter(0));
  h.runner.before_step = [&](const StepBatch&) {
    h.clock.Advance(1000h);
    EXPECT_EQ(h.loop.health(), absl::OkStatus());
  };
  EXPECT_EQ(h.Run(TokenRequest(Prompt(9), 3)).status, absl::OkStatus());
}

TEST(EngineLoopStallTest, ADeadEngineIsNotTakenForAStalledOne) {
  LoopHarness h(StalledAfter(300));
  h.runner.FailStep(2, absl::InternalError("device lost"));
  h.Run(TokenRequest(Prompt(9), 5));
  h.clock.Advance(1000s);
  EXPECT_EQ(h.loop.health(), absl::InternalError("device lost"));
}

// No request is there, but the thread would take none: it hangs in what an operator asked of the
// cache. A thread that has ended hangs no more.
TEST(EngineLoopStallTest, WhatWakesTheThreadMayStallIt) {
  LoopHarness h(StalledAfter(300));
  std::thread thread([&] { h.loop.Run(); });
  absl::Status seen;
  h.queue->Send([&](const absl::StatusOr<kvcache::CacheManager*>&) {
    h.clock.Advance(300s);
    seen = h.loop.health();
  });
  h.queue->Send([&](const absl::StatusOr<kvcache::CacheManager*>&) { h.queue->Close(); });
  thread.join();
  EXPECT_EQ(seen, Stalled(300));
  h.clock.Advance(1000s);
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
}

}  // namespace
}  // namespace refrain::engine
