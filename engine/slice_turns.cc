#include "engine/slice_turns.h"

namespace refrain::engine {

bool SliceTurns::Take(const std::string& tenant, const std::function<bool()>& give_up,
                      std::chrono::milliseconds period) {
  const uint64_t number = StandInLine(tenant);
  try {
    while (!WaitForTurn(number, std::chrono::steady_clock::now() + period)) {
      if (!give_up()) continue;
      Leave(number);
      return false;
    }
  } catch (...) {
    Leave(number);
    throw;
  }
  return true;
}

uint64_t SliceTurns::StandInLine(const std::string& tenant) {
  MutexLock lock(mutex_);
  const uint64_t number = ++last_number_;
  waiting_.Push(tenant, number);
  if (turn_of_ == 0) PassLocked();
  return number;
}

bool SliceTurns::WaitForTurn(uint64_t number, std::chrono::steady_clock::time_point until) {
  MutexLock lock(mutex_);
  while (turn_of_ != number) {
    if (!changed_.WaitUntil(mutex_, until)) break;
  }
  return turn_of_ == number;
}

void SliceTurns::Leave(uint64_t number) {
  MutexLock lock(mutex_);
  if (turn_of_ == number) {
    PassLocked();
  } else {
    waiting_.Remove([number](uint64_t other) { return other == number; });
  }
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
