#include "server/wakeup_queue.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace refrain::server {
namespace {

// Targets that run one after the other before the other work gets its turn.
constexpr int kMostInARow = 64;

}  // namespace

struct WakeupQueue::Waker {
  std::weak_ptr<Target> target;
  std::atomic<bool> woken{false};
};

std::function<void()> WakeupQueue::MakeWaker(std::weak_ptr<Target> target) {
  auto waker = std::make_shared<Waker>();
  waker->target = std::move(target);
  return [this, waker = std::move(waker)] {
    if (!waker->woken.exchange(true, std::memory_order_acq_rel)) return Add(waker);
    if (unposted_.load(std::memory_order_acquire)) PostRun();
  };
}

void WakeupQueue::Add(const std::shared_ptr<Waker>& waker) {
  {
    MutexLock lock(mutex_);
    try {
      woken_.push_back(waker);
    } catch (...) {
      waker->woken.store(false, std::memory_order_release);
      throw;
    }
    if (std::exchange(posted_, true)) return;
  }
  PostRun();
}

// One too many is no harm: a Run that finds nothing to do ends.
void WakeupQueue::PostRun() {
  const auto note = [this](bool posted) {
    MutexLock lock(mutex_);
    posted_ = posted;
    unposted_.store(!posted, std::memory_order_release);
  };
  note(true);
  try {
    post_([this] { Run(); });
  } catch (...) {
    note(false);
    throw;
  }
}

void WakeupQueue::Run() {
  try {
    RunSome();
  } catch (...) {
    PostRun();  // for the others; if it throws, too, that is told instead
    throw;
  }
}

void WakeupQueue::RunSome() {
  for (int i = 0; i < kMostInARow; ++i) {
    if (running_.empty()) {
      MutexLock lock(mutex_);
      if (woken_.empty()) {
        posted_ = false;
        return;
      }
      running_.swap(woken_);
      std::reverse(running_.begin(), running_.end());
    }
    const std::shared_ptr<Waker> waker = std::move(running_.back());
    running_.pop_back();
    // Before it runs: what comes from now on wakes it up again.
    waker->woken.store(false, std::memory_order_release);
    if (const auto target = waker->target.lock()) target->OnWakeup();
  }
  PostRun();
}

}  // namespace refrain::server
