#include "server/http/wakeup_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace refrain::server::http {
namespace {

class Counter final : public WakeupQueue::Target {
 public:
  explicit Counter(std::function<void()> then = [] {}) : then_(std::move(then)) {}
  void OnWakeup() override {
    ++count;
    then_();
  }
  int count = 0;

 private:
  const std::function<void()> then_;
};

class WakeupQueueTest : public ::testing::Test {
 protected:
  boost::asio::io_context context_{1};
  WakeupQueue queue_{&context_};
};

TEST_F(WakeupQueueTest, RunsATargetOnceHoweverOftenItWasWokenUp) {
  const auto target = std::make_shared<Counter>();
  const auto wake = queue_.MakeWaker(target);
  for (int i = 0; i < 5; ++i) wake();
  EXPECT_EQ(target->count, 0) << "on the event loop's thread only";
  context_.run();
  EXPECT_EQ(target->count, 1);
  wake();
  context_.restart();
  context_.run();
  EXPECT_EQ(target->count, 2);
}

TEST_F(WakeupQueueTest, TellsTheEventLoopOnceForManyTargets) {
  std::vector<std::shared_ptr<Counter>> targets;
  for (int i = 0; i < 50; ++i) {
    targets.push_back(std::make_shared<Counter>());
    queue_.MakeWaker(targets.back())();
  }
  EXPECT_EQ(context_.run(), 1u) << "handlers of the event loop";
  for (const auto& target : targets) EXPECT_EQ(target->count, 1);
}

TEST_F(WakeupQueueTest, RunsAgainWhoIsWokenUpWhileItRuns) {
  std::function<void()> wake;
  int left = 3;
  const auto target = std::make_shared<Counter>([&] {
    if (--left > 0) wake();
  });
  wake = queue_.MakeWaker(target);
  wake();
  context_.run();
  EXPECT_EQ(target->count, 3);
}

TEST_F(WakeupQueueTest, LetsTheEventLoopsOtherWorkInBetween) {
  std::vector<std::shared_ptr<Counter>> targets;
  int ran = 0, ran_before = -1;
  for (int i = 0; i < 200; ++i) {
    targets.push_back(std::make_shared<Counter>([&] { ++ran; }));
    queue_.MakeWaker(targets.back())();
  }
  boost::asio::post(context_, [&] { ran_before = ran; });
  context_.run();
  EXPECT_EQ(ran, 200);
  EXPECT_LT(ran_before, 100) << "a step of the engine must not hold up all else";
}

TEST_F(WakeupQueueTest, ForgetsTargetsThatAreGone) {
  int ran = 0;
  auto target = std::make_shared<Counter>([&] { ++ran; });
  const std::weak_ptr<Counter> watched = target;
  const auto wake = queue_.MakeWaker(target);
  wake();
  target.reset();
  EXPECT_TRUE(watched.expired()) << "a waker keeps nothing alive";
  context_.run();
  wake();
  context_.restart();
  context_.run();
  EXPECT_EQ(ran, 0);
}

// Each wakeup comes after a change that its target has to see.
TEST_F(WakeupQueueTest, LosesNoWakeupOfManyThreads) {
  constexpr int kThreads = 4, kChanges = 20'000;
  std::atomic<int> changes{0};
  int seen = 0;
  const auto target = std::make_shared<Counter>([&] { seen = changes.load(); });
  const auto wake = queue_.MakeWaker(target);
  auto work = boost::asio::make_work_guard(context_);
  std::thread loop([&] { context_.run(); });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kChanges; ++j) {
        ++changes;
        wake();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  work.reset();
  loop.join();
  EXPECT_EQ(seen, kThreads * kChanges);
}

}  // namespace
}  // namespace refrain::server::http
