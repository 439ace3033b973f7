#include "server/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace refrain::server {
namespace {

using namespace std::chrono_literals;

// In a process of its own: the main thread hangs as it ends, and is not the one that listens.
void HangEndingWithin(std::chrono::milliseconds limit, int signal) {
  StopSignals signals([] {});
  signals.EndWithin(limit, [](StopSignals::Event event) {
    ::_exit(event == StopSignals::Event::kTimeout ? 10 : 11);
  });
  if (signal != 0) ::kill(::getpid(), signal);
  for (;;) std::this_thread::sleep_for(1h);
}

TEST(StopSignalsDeathTest, ASignalEndsAnEndThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(HangEndingWithin(1h, SIGTERM), ::testing::ExitedWithCode(11), "");
  EXPECT_EXIT(HangEndingWithin(1h, SIGINT), ::testing::ExitedWithCode(11), "");
}

TEST(StopSignalsDeathTest, AnEndThatHangsEndsAtItsLimit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(HangEndingWithin(50ms, 0), ::testing::ExitedWithCode(10), "");
  EXPECT_EXIT(HangEndingWithin(50ms, SIGHUP), ::testing::ExitedWithCode(10), "");
}

TEST(StopSignalsTest, AWaitEndsAtItsLimitAndLosesNothing) {
  StopSignals signals([] {});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(signals.Wait(50ms), StopSignals::Event::kTimeout);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
  signals.NotifyWorkDone();
  EXPECT_EQ(signals.Wait(0ms), StopSignals::Event::kWorkDone);
  EXPECT_EQ(signals.Wait(0ms), StopSignals::Event::kTimeout);
}

TEST(StopSignalsTest, AnEndThatIsSoonOverIsLeftAlone) {
  {
    StopSignals signals([] {});
    signals.EndWithin(50ms, [](StopSignals::Event) { ADD_FAILURE(); });
  }
  std::this_thread::sleep_for(100ms);
}

}  // namespace
}  // namespace refrain::server
