#ifndef REFRAIN_SERVER_TASK_QUEUE_H_
#define REFRAIN_SERVER_TASK_QUEUE_H_

#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/tenant_queue.h"

namespace refrain::server {

// Threads for what neither those of connections nor the engine's may do: the ones serve all
// connections, the other all requests. Post never blocks and may be called from any thread. Tasks
// of one owner (API key) run in order of arrival, several at once where there are several threads;
// owners take turns, a task each, so that nobody waits for more than one of each other's. A task
// must not throw. The destructor runs what is left.
class TaskQueue {
 public:
  // kShort: tasks of some microseconds that a client waits for (AskForShortTimeSlice).
  enum class Tasks { kShort, kLong };

  // Throws std::system_error where the system refuses a thread (WithThreads).
  TaskQueue(int threads, Tasks tasks);
  ~TaskQueue();

  // `owner` "" is nobody: one among the others.
  void Post(std::string_view owner, std::function<void()> task);

 private:
  TaskQueue() = default;
  void Serve(Tasks tasks);

  Mutex mutex_;
  ConditionVariable changed_;
  engine::TenantQueue<std::function<void()>> tasks_ REFRAIN_GUARDED_BY(mutex_);
  bool closed_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_TASK_QUEUE_H_
