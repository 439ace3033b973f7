#include "server/grpc/task_queue.h"

#include <utility>

#include "server/time_slice.h"

namespace refrain::server::rpc {

TaskQueue::TaskQueue(int threads, Tasks tasks) {
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

void TaskQueue::Post(std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
}

void TaskQueue::Serve(Tasks tasks) {
  if (tasks == Tasks::kShort) AskForShortTimeSlice();
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !closed_) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace refrain::server::rpc
