#include "server/wakeup_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "server/task_queue.h"

namespace refrain::server {
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
  // All that has been posted; how many there were.
  size_t RunPosted() {
    size_t works = 0;
    for (; !posted_.empty(); ++works) {
      const std::function<void()> work = std::move(posted_.front());
      posted_.pop_front();
      work();
    }
    return works;
  }

  std::deque<std::function<void()>> posted_;
  WakeupQueue queue_{[this](std::function<void()> work) { posted_.push_back(std::move(work)); }};
};

TEST_F(WakeupQueueTest, RunsATargetOnceHoweverOftenItWasWokenUp) {
  const auto target = std::make_shared<Counter>();
  const auto wake = queue_.MakeWaker(target);
  for (int i = 0; i < 5; ++i) wake();
  EXPECT_EQ(target->count, 0) << "on the queue's thread only";
  RunPosted();
  EXPECT_EQ(target->count, 1);
  wake();
  RunPosted();
  EXPECT_EQ(target->count, 2);
}

TEST_F(WakeupQueueTest, TellsTheThreadOnceForManyTargets) {
  std::vector<std::shared_ptr<Counter>> targets;
  for (int i = 0; i < 50; ++i) {
    targets.push_back(std::make_shared<Counter>());
    queue_.MakeWaker(targets.back())();
  }
  EXPECT_EQ(RunPosted(), 1u);
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
  RunPosted();
  EXPECT_EQ(target->count, 3);
}

TEST_F(WakeupQueueTest, LetsOtherWorkInBetween) {
  std::vector<std::shared_ptr<Counter>> targets;
  int ran = 0, ran_before = -1;
  for (int i = 0; i < 200; ++i) {
    targets.push_back(std::make_shared<Counter>([&] { ++ran; }));
    queue_.MakeWaker(targets.back())();
  }
  posted_.emplace_back([&] { ran_before = ran; });
  RunPosted();
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
  RunPosted();
  wake();
  RunPosted();
  EXPECT_EQ(ran, 0);
}

// Memory may be refused for a post; nobody sleeps on for that.
TEST(WakeupQueueFaultTest, APostThatFailsIsMadeAgainWithTheNextWakeupOfAnybody) {
  for (const bool same : {false, true}) {
    SCOPED_TRACE(same ? "the same" : "another");
    bool fails = true;
    std::deque<std::function<void()>> posted;
    WakeupQueue queue([&](std::function<void()> work) {
      if (fails) throw std::bad_alloc();
      posted.push_back(std::move(work));
    });
    const auto first = std::make_shared<Counter>(), second = std::make_shared<Counter>();
    const auto wake_first = queue.MakeWaker(first), wake_second = queue.MakeWaker(second);
    EXPECT_THROW(wake_first(), std::bad_alloc);
    fails = false;
    (same ? wake_first : wake_second)();
    ASSERT_EQ(posted.size(), 1u);
    posted.front()();
    EXPECT_EQ(first->count, 1);
    EXPECT_EQ(second->count, same ? 0 : 1);
    wake_first();
    wake_second();
    EXPECT_EQ(posted.size(), 2u) << "all is as before";
  }
}

TEST_F(WakeupQueueTest, ATargetThatThrowsTakesNoOthersTurn) {
  const auto faulty = std::make_shared<Counter>([] { throw std::bad_alloc(); });
  const auto other = std::make_shared<Counter>();
  queue_.MakeWaker(faulty)();
  const auto wake_other = queue_.MakeWaker(other);
  wake_other();
  EXPECT_THROW(RunPosted(), std::bad_alloc);
  RunPosted();
  EXPECT_EQ(other->count, 1);
  wake_other();
  RunPosted();
  EXPECT_EQ(other->count, 2);
}

// Each wakeup comes after a change that its target has to see.
TEST(WakeupQueueThreadsTest, LosesNoWakeupOfManyThreads) {
  constexpr int kThreads = 4, kChanges = 20'000;
  std::atomic<int> changes{0};
  int seen = 0;
  const auto target = std::make_shared<Counter>([&] { seen = changes.load(); });
  auto tasks = std::make_unique<TaskQueue>(1, TaskQueue::Tasks::kShort);
  WakeupQueue queue([&](std::function<void()> work) { tasks->Post("", std::move(work)); });
  const auto wake = queue.MakeWaker(target);
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
  tasks.reset();
  EXPECT_EQ(seen, kThreads * kChanges);
}

}  // namespace
}  // namespace refrain::server
