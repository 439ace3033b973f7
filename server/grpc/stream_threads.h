#ifndef REFRAIN_SERVER_GRPC_STREAM_THREADS_H_
#define REFRAIN_SERVER_GRPC_STREAM_THREADS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "server/task_queue.h"
#include "server/wakeup_queue.h"

namespace refrain::server::rpc {

// The threads that bring on answers as the engine makes them. All calls of a connection belong to
// one thread: two that write to the same one wait for each other inside gRPC, which then leaves
// the rest to a third.
class StreamThreads {
 public:
  // Throws std::system_error where the system refuses a thread (WithThreads).
  explicit StreamThreads(int threads) {
    for (int i = 0; i < threads; ++i) threads_.push_back(std::make_unique<Thread>());
  }

  // `connection` names it (CallbackServerContext::peer).
  std::function<void()> MakeWaker(std::weak_ptr<WakeupQueue::Target> target,
                                  std::string_view connection) {
    const size_t thread = std::hash<std::string_view>()(connection) % threads_.size();
    return threads_[thread]->wakeups.MakeWaker(std::move(target));
  }

 private:
  struct Thread {
    WakeupQueue wakeups{[this](std::function<void()> work) { tasks.Post("", std::move(work)); }};
    TaskQueue tasks{1, TaskQueue::Tasks::kShort};
  };

  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_STREAM_THREADS_H_
