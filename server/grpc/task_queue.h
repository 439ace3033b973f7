#ifndef REFRAIN_SERVER_GRPC_TASK_QUEUE_H_
#define REFRAIN_SERVER_GRPC_TASK_QUEUE_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "engine/annotated_mutex.h"

namespace refrain::server::rpc {

// Threads for what neither gRPC's own threads nor the engine's may do: the ones serve all
// connections, the other all requests. Post never blocks and may be called from any thread; tasks
// of one queue run in order of arrival, several at once where there are several threads. The
// destructor runs what is left.
class TaskQueue {
 public:
  // kShort: tasks of some microseconds that a client waits for (AskForShortTimeSlice).
  enum class Tasks { kShort, kLong };

  TaskQueue(int threads, Tasks tasks);
  ~TaskQueue();

  void Post(std::function<void()> task);

 private:
  void Serve(Tasks tasks);

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> tasks_ REFRAIN_GUARDED_BY(mutex_);
  bool closed_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_TASK_QUEUE_H_
