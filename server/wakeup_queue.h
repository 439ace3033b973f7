#ifndef REFRAIN_SERVER_WAKEUP_QUEUE_H_
#define REFRAIN_SERVER_WAKEUP_QUEUE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"

namespace refrain::server {

// Hands wakeups from any thread to one thread that has other work, too. A step of the engine wakes
// up all of its streams one after the other: they are gathered here, so that the thread is told
// once and not once for each, and nobody waits for its locks.
//
// A waker is one target's: calling it any number of times before the target runs makes it run once.
// It never blocks, allocates next to nothing, and may be called until the queue is destroyed, also
// when its target is gone. It throws what Post throws, or std::bad_alloc: then its target, and
// those that wait with it, run once any of the queue's wakers is called again.
class WakeupQueue {
 public:
  // What is to run on the thread.
  class Target {
   public:
    virtual ~Target() = default;
    virtual void OnWakeup() = 0;
  };
  // Has the thread run `work`, once, behind what it was given before; `work` throws what a target
  // throws. Any thread.
  using Post = std::function<void(std::function<void()> work)>;

  // The thread runs nothing of the queue's any more when that is destroyed.
  explicit WakeupQueue(Post post) : post_(std::move(post)) {}

  std::function<void()> MakeWaker(std::weak_ptr<Target> target);

 private:
  struct Waker;

  void Add(const std::shared_ptr<Waker>& waker);
  void PostRun();
  void Run();
  void RunSome();

  const Post post_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Waker>> woken_ REFRAIN_GUARDED_BY(mutex_);
  bool posted_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::atomic<bool> unposted_{false};            // the last post threw
  std::vector<std::shared_ptr<Waker>> running_;  // that thread only; in reverse order
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_WAKEUP_QUEUE_H_
