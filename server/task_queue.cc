#include "server/task_queue.h"

#include <optional>
#include <utility>

#include "server/time_slice.h"

namespace refrain::server {

// Behind the delegation the destructor ends the threads that there are when one is refused.
TaskQueue::TaskQueue(int threads, Tasks tasks) : TaskQueue() {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, tasks] { Serve(tasks); });
  }
}

TaskQueue::~TaskQueue() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void TaskQueue::Post(std::string_view owner, std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.Push(owner, std::move(task));
  changed_.NotifyOne();
}

void TaskQueue::Serve(Tasks tasks) {
  if (tasks == Tasks::kShort) AskForShortTimeSlice();
  for (;;) {
    std::optional<std::function<void()>> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !closed_) changed_.Wait(mutex_);
      task = tasks_.Pop();
    }
    if (!task.has_value()) return;
    (*task)();
  }
}

}  // namespace refrain::server
