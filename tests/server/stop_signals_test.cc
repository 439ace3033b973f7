#include "server/stop_signals.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <system_error>
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

// Which would be deaf.
TEST(StopSignalsTest, IsNotMadeWithoutItsFiles) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  for (int left = 0; left < 3; ++left) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next + left), .rlim_max = usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    try {
      StopSignals signals([] {});
      ADD_FAILURE() << left;
    } catch (const std::system_error& refused) {
      // UBSan looks at objects through a pipe.
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
      EXPECT_EQ(refused.code(), std::errc::too_many_files_open) << left;
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  StopSignals signals([] {});
  signals.NotifyWorkDone();
  EXPECT_EQ(signals.Wait(), StopSignals::Event::kWorkDone);
}

}  // namespace
}  // namespace refrain::server
