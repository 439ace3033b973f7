#include "kernels/cuda/step_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "kernels/cuda/emulated/emulated_runtime.h"

namespace refrain::kernels::cuda {
namespace {

constexpr double kLate = 0.02;  // seconds

// The emulated device runs a stream when somebody waits for it: Run is when the device does.
class StepClockTest : public testing::Test {
 protected:
  void Start(const emulated::EmulatedOptions& options = {}) {
    runtime_ = emulated::MakeEmulatedRuntime(options);
    stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
    clock_ = std::make_unique<StepClock>(*runtime_, *stream_);
  }
  void TearDown() override {
    clock_.reset();
    stream_.reset();
  }

  void Run() { (void)runtime_->Synchronize(*stream_); }
  static void BeLate() { std::this_thread::sleep_for(std::chrono::duration<double>(kLate)); }
  void Step() {
    clock_->StepBegins();
    clock_->HostLeaves();
    clock_->HostReturns();
    clock_->StepEnds();
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<StepClock> clock_;
};

TEST_F(StepClockTest, AStepInTimeIsNotIdle) {
  Start();
  clock_->StepBegins();
  Run();
  BeLate();  // of the device, with the forward pass
  clock_->HostLeaves();
  clock_->HostReturns();
  clock_->StepEnds();
  EXPECT_EQ(clock_->times().step_seconds, 0);  // it has not run
  Run();
  const DeviceTimes times = clock_->times();
  EXPECT_GE(times.step_seconds, 0.9 * kLate);
  EXPECT_LT(times.idle_seconds, kLate / 2);
}

TEST_F(StepClockTest, AHostThatComesLateWithTheSamplingLetsTheDeviceIdle) {
  Start();
  clock_->StepBegins();
  clock_->HostLeaves();
  Run();
  BeLate();
  clock_->HostReturns();
  clock_->StepEnds();
  Run();
  const DeviceTimes times = clock_->times();
  EXPECT_GE(times.idle_seconds, 0.9 * kLate);
  EXPECT_GE(times.step_seconds, times.idle_seconds);
}

TEST_F(StepClockTest, BetweenStepsThatFollowEachOtherTheDeviceIdles) {
  Start();
  Step();
  Run();
  BeLate();
  Step();  // the one before was not awaited
  Run();
  EXPECT_GE(clock_->times().idle_seconds, 0.9 * kLate);
}

TEST_F(StepClockTest, WhatTheHostCouldNotHaveLaunchedBeforeIsNoIdling) {
  Start();
  Step();
  Run();
  clock_->StepAwaited();
  BeLate();  // no requests
  Step();
  Run();
  const DeviceTimes times = clock_->times();
  EXPECT_LT(times.step_seconds, kLate / 2);
  EXPECT_LT(times.idle_seconds, kLate / 2);
}

TEST_F(StepClockTest, AStepWithoutAnEndCountsForNothing) {
  Start();
  clock_->StepBegins();
  clock_->HostLeaves();
  Run();
  BeLate();
  clock_->StepBegins();
  clock_->HostLeaves();
  clock_->StepEnds();
  Run();
  EXPECT_LT(clock_->times().step_seconds, kLate / 2);
}

TEST_F(StepClockTest, TheHostMayComeBackWithoutAStep) {
  Start();
  Step();
  clock_->StepAwaited();
  clock_->HostReturns();
  clock_->HostLeaves();
  Run();
  BeLate();
  Step();
  Run();
  EXPECT_LT(clock_->times().step_seconds, kLate / 2);
}

// Ten events in all, ever: more are refused, and then the clock stands.
TEST_F(StepClockTest, EventsAreUsedAgain) {
  Start({.failing_call = "CreateTimingEvent", .failing_call_index = 10});
  for (int step = 0; step < 100; ++step) {
    Step();
    Run();
    clock_->StepAwaited();
  }
  const double seconds = clock_->times().step_seconds;
  EXPECT_GT(seconds, 0);
  clock_->StepBegins();
  Run();
  BeLate();
  clock_->StepEnds();
  Run();
  EXPECT_GE(clock_->times().step_seconds, seconds + 0.9 * kLate);
}

TEST_F(StepClockTest, ARefusedEventStopsTheClockAlone) {
  for (const char* call : {"CreateTimingEvent", "Record", "HasPassed"}) {
    Start({.failing_call = call, .failing_call_index = 1});
    for (int step = 0; step < 3; ++step) {
      Step();
      Run();
    }
    const DeviceTimes times = clock_->times();
    BeLate();
    Step();
    Run();
    EXPECT_EQ(clock_->times().step_seconds, times.step_seconds) << call;
    TearDown();
  }
}

}  // namespace
}  // namespace refrain::kernels::cuda
