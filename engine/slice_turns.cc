#include "engine/slice_turns.h"

namespace refrain::engine {

bool SliceTurns::Take(const std::string& tenant, const std::function<bool()>& give_up,
                      std::chrono::milliseconds period) {
  mutex_.Lock();
  const uint64_t number = ++last_number_;
  waiting_.Push(tenant, number);
  if (turn_of_ == 0) PassLocked();
  while (turn_of_ != number) {
    if (changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + period)) continue;
    mutex_.Unlock();
    const bool over = give_up();
    mutex_.Lock();
    if (!over) continue;
    if (turn_of_ == number) {
      PassLocked();
    } else {
      waiting_.TakeIf([&](uint64_t other) { return other == number; });
    }
    mutex_.Unlock();
    return false;
  }
  mutex_.Unlock();
  return true;
}

void SliceTurns::Pass() {
  MutexLock lock(mutex_);
  PassLocked();
}

void SliceTurns::PassLocked() {
  turn_of_ = waiting_.Pop().value_or(0);
  changed_.NotifyAll();
}

bool SliceTurns::AnyWaits() {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

}  // namespace refrain::engine
