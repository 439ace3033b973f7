#ifndef REFRAIN_ENGINE_SLICE_TURNS_H_
#define REFRAIN_ENGINE_SLICE_TURNS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/annotated_mutex.h"
#include "engine/tenant_queue.h"

namespace refrain::engine {

// Lets several threads work as if they were one: in slices, one of them at a time, tenants in turns
// and the threads of a tenant in turns among themselves. It knows nothing of what they do or for
// how long. Any thread.
class SliceTurns {
 public:
  // Until it is this thread's turn. False, and no turn, when `give_up` says so, which is asked at
  // least every `period`, without the lock. Throws what that throws, or for want of memory, with no
  // turn and no place in the line.
  bool Take(const std::string& tenant, const std::function<bool()>& give_up,
            std::chrono::milliseconds period);
  // Whoever has the turn gives it to the next.
  void Pass();
  // Does anybody wait for a turn?
  bool AnyWaits();

 private:
  uint64_t StandInLine(const std::string& tenant);  // the place's number
  bool WaitForTurn(uint64_t number, std::chrono::steady_clock::time_point until);
  void Leave(uint64_t number);
  void PassLocked() REFRAIN_REQUIRES(mutex_);

  Mutex mutex_;
  ConditionVariable changed_;
  uint64_t last_number_ REFRAIN_GUARDED_BY(mutex_) = 0;
  uint64_t turn_of_ REFRAIN_GUARDED_BY(mutex_) = 0;  // 0: nobody's
  TenantQueue<uint64_t> waiting_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SLICE_TURNS_H_
