#ifndef REFRAIN_SERVER_HTTP_WAKEUP_QUEUE_H_
#define REFRAIN_SERVER_HTTP_WAKEUP_QUEUE_H_

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "engine/annotated_mutex.h"

namespace refrain::server::http {

// Hands wakeups from any thread to the thread of one event loop. A step of the engine wakes up all
// of its streams one after the other: they are gathered here, so that the event loop is told once
// and not once for each, and nobody waits for its locks. Inside http/ only.
//
// A waker is one target's: calling it any number of times before the target runs makes it run once.
// It never blocks, allocates next to nothing, and may be called until the queue is destroyed, also
// when its target is gone.
class WakeupQueue {
 public:
  // What is to run on the event loop's thread.
  class Target {
   public:
    virtual ~Target() = default;
    virtual void OnWakeup() = 0;
  };

  // `context` outlives the queue.
  explicit WakeupQueue(boost::asio::io_context* context) : context_(context) {}

  std::function<void()> MakeWaker(std::weak_ptr<Target> target);

 private:
  struct Waker;

  void Add(std::shared_ptr<Waker> waker);
  void Run();

  boost::asio::io_context* const context_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Waker>> woken_ REFRAIN_GUARDED_BY(mutex_);
  bool posted_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Waker>> running_;  // the event loop's thread only; in reverse order
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_WAKEUP_QUEUE_H_
