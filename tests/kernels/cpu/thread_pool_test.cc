#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/control_groups.h"
#include "tests/support/little_room.h"

namespace refrain::kernels::cpu {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsOnceOnEachThread) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.threads(), GetParam());
  for (int round = 0; round < 200; ++round) {
    // Plain integers: a region's end must make each thread's writes visible to the caller.
    std::vector<int> calls(pool.threads(), 0);
    pool.Run([&](int thread) { ++calls[thread]; });
    EXPECT_EQ(calls, std::vector<int>(pool.threads(), 1));
  }
}

TEST_P(ThreadPoolTest, ParallelForCoversEveryIndexOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 7, 64, 1001}) {
    for (const int64_t grain : {1, 3, 64, 5000}) {
      std::vector<int> seen(count, 0);
      pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
        ASSERT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_EQ(seen, std::vector<int>(count, 1)) << count << " by " << grain;
    }
  }
}

TEST_P(ThreadPoolTest, ParallelForStretchesCoversEveryIndexOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 7, 64, 1001}) {
    for (const int64_t grain : {1, 3, 64, 5000}) {
      std::vector<int> seen(count, 0);
      pool.ParallelForStretches(count, grain, [&](int64_t begin, int64_t end) {
        ASSERT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_EQ(seen, std::vector<int>(count, 1)) << count << " by " << grain;
    }
  }
}

// Each thread is held in its first piece until all have one: those are the begins of as many
// stretches, the caller's the first.
TEST_P(ThreadPoolTest, EachThreadBeginsWithAStretchOfItsOwn) {
  ThreadPool pool(GetParam());
  constexpr int64_t kEach = 10;
  const int threads = pool.threads();
  std::mutex mutex;
  std::map<std::thread::id, int64_t> first;
  std::atomic<int> begun{0};
  pool.ParallelForStretches(kEach * threads, 1, [&](int64_t begin, int64_t) {
    {
      const std::lock_guard lock(mutex);
      if (!first.emplace(std::this_thread::get_id(), begin).second) return;
    }
    ++begun;
    while (begun < threads) std::this_thread::yield();
  });
  std::set<int64_t> got, want;
  for (const auto& [thread, begin] : first) got.insert(begin);
  for (int i = 0; i < threads; ++i) want.insert(i * kEach);
  EXPECT_EQ(got, want);
  EXPECT_EQ(first[std::this_thread::get_id()], 0);
}

// One thread is held up in its first piece: the others take the rest of its stretch.
TEST_P(ThreadPoolTest, StretchOfAThreadThatIsHeldUpIsTakenByOthers) {
  ThreadPool pool(GetParam());
  if (pool.threads() == 1) GTEST_SKIP() << "nobody else";
  constexpr int64_t kEach = 100;
  const int64_t count = kEach * pool.threads();
  std::atomic<int64_t> done{0};
  pool.ParallelForStretches(count, 1, [&](int64_t begin, int64_t) {
    if (begin == 0) {
      while (done < count - 1) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done.load(), count);
}

// Regions must see what the caller wrote before, whether workers spin or have parked meanwhile.
TEST_P(ThreadPoolTest, WakesParkedWorkersAndPassesData) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> data(512);
  for (const int pause_us : {0, 10, 60, 500, 0, 3000, 45, 50, 55}) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    std::iota(data.begin(), data.end(), pause_us);
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(512, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += data[i];
    });
    EXPECT_EQ(sum.load(), 512 * 511 / 2 + 512 * pause_us);
  }
}

// A worker that is still busy long after the caller has finished: the caller parks, and returns
// only when the worker is done.
TEST_P(ThreadPoolTest, WaitsForSlowWorkers) {
  ThreadPool pool(GetParam());
  std::vector<int> done(pool.threads(), 0);
  pool.Run([&](int thread) {
    if (thread != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done[thread] = 1;
  });
  EXPECT_EQ(done, std::vector<int>(pool.threads(), 1));
}

// Workers come late to some regions and find the next ones open: no index may be lost or done
// twice, and Run must still reach each thread once.
TEST_P(ThreadPoolTest, ManyShortRegionsOfAllKindsFollowEachOther) {
  ThreadPool pool(GetParam());
  int64_t total = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> sums(pool.threads() + 3, 0);
    pool.ParallelFor(pool.threads() + 3, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] = i;
    });
    pool.ParallelForStretches(pool.threads() + 3, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] += round;
    });
    for (const int64_t sum : sums) total += sum;
    if (round % 7 == 0) {
      std::vector<int> calls(pool.threads(), 0);
      pool.Run([&](int thread) { ++calls[thread]; });
      ASSERT_EQ(calls, std::vector<int>(pool.threads(), 1)) << "round " << round;
    }
  }
  const int64_t n = pool.threads() + 3;
  EXPECT_EQ(total, 3000 * n * (n - 1) / 2 + n * (3000 * 2999 / 2));
}

double ThreadSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// As where memory is refused: whoever called can tell, and asks again.
TEST_P(ThreadPoolTest, ThrowsWhatAThreadThrewBehindTheRegion) {
  ThreadPool pool(GetParam());
  for (int thrower = 0; thrower < pool.threads(); ++thrower) {
    std::atomic<int> done = 0;
    const auto in_one = [&](int thread) {
      if (thread == thrower) throw std::runtime_error("no memory");
      ++done;
    };
    EXPECT_THROW(pool.Run(in_one), std::runtime_error) << thrower;
    EXPECT_EQ(done, pool.threads() - 1);
    const auto in_all = [](int64_t, int64_t) { throw std::runtime_error("no memory"); };
    EXPECT_THROW(pool.ParallelFor(100, 1, in_all), std::runtime_error);
    EXPECT_THROW(pool.ParallelForStretches(100, 1, in_all), std::runtime_error);
    std::atomic<int64_t> sum = 0;
    pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 100);
  }
}

// A pool that nobody asks leaves the processors alone. By each worker's own clock, from one region
// to the next; the least of many regions, since other work on the machine makes some dearer.
TEST_P(ThreadPoolTest, SpinsForAMomentOnlyBehindARegion) {
  ThreadPool pool(GetParam());
  if (pool.threads() == 1) GTEST_SKIP() << "nobody spins";
  constexpr int kRegions = 100;
  constexpr std::chrono::milliseconds kPause{2};
  std::vector<double> last(pool.threads()), least(pool.threads(), 1.0);
  pool.Run([&](int thread) { last[thread] = ThreadSeconds(); });
  for (int region = 0; region < kRegions; ++region) {
    std::this_thread::sleep_for(kPause);
    pool.Run([&](int thread) {
      const double now = ThreadSeconds();
      least[thread] = std::min(least[thread], now - last[thread]);
      last[thread] = now;
    });
  }
  // 50 us of spinning, to park and to wake up; a worker that spins until it is asked again takes
  // the pause, as far as there are processors.
  for (int worker = 1; worker < pool.threads(); ++worker) {
    EXPECT_LT(least[worker], 100e-6) << "worker " << worker;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPoolTest, TakesAllCoresForZero) {
  ThreadPool pool(0);
  EXPECT_GE(pool.threads(), 1);
  EXPECT_LE(pool.threads(), static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_LE(pool.threads(), CoresInControlGroups());
}

#ifdef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
TEST(ThreadPoolLimits, IsSmallerWhereTheSystemAllowsNoMoreThreads) {
  const auto with_little_room = [] {
    ::refrain::testing::LeaveLittleRoom();
    ThreadPool pool(100);
    std::atomic<int64_t> sum = 0;
    pool.ParallelFor(1000, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    std::exit(pool.threads() > 1 && pool.threads() < 100 && sum == 1000 ? 0 : 1);
  };
  EXPECT_EXIT(with_little_room(), ::testing::ExitedWithCode(0), "");
}
#endif

// The end may come while a worker looks at the last region, for which it is too late.
TEST(ThreadPoolEndTest, WorkersThatAreLateForARegionSeeTheEnd) {
  for (int i = 0; i < 3000; ++i) {
    ThreadPool pool(2);
    for (int region = 0; region < 2; ++region) pool.ParallelFor(2, 1, [](int64_t, int64_t) {});
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(5 * (i % 4096));
    while (std::chrono::steady_clock::now() < end) {
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cpu
