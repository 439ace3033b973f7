#include "server/grpc/library_threads.h"

#include <grpc/support/cpu.h>
#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <system_error>
#include <vector>

#include "engine/annotated_mutex.h"
#include "server/task_queue.h"

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

// gRPC starts with so many at most, and as many as there are processors, up to a bound.
constexpr int kThreadsOfLibrary = 12;
constexpr int kMostThreadsByProcessors = 32;
// Its executor (src/core/lib/iomgr/executor.cc) has one at first, and starts another when this many
// closures or more wait for one, up to these per processor.
constexpr int kClosuresForAnother = 3;
constexpr int kExecutorThreadsPerProcessor = 2;
// Some milliseconds suffice, but for a machine that is overloaded.
constexpr std::chrono::seconds kMostTime{20};
// The timer's first thread starts a second one when a timer first expires.
constexpr std::chrono::milliseconds kTimer{1};

// Processors that are offline count, too, as gRPC has it.
int Processors() { return static_cast<int>(::gpr_cpu_num_cores()); }

// What the executor's threads wait at. It outlives the call that was too slow.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
    ++passed_;
    changed_.NotifyAll();
  }
  // False when fewer have passed at `deadline`.
  bool WaitUntilPassed(size_t number, Clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (passed_ < number) {
      if (!changed_.WaitUntil(mutex_, deadline)) return passed_ >= number;
    }
    return true;
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool open_ REFRAIN_GUARDED_BY(mutex_) = false;
  size_t passed_ REFRAIN_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void RehearseLibraryThreads() {
  TaskQueue rehearsal(std::min(Processors(), kMostThreadsByProcessors) + kThreadsOfLibrary +
                          kExecutorThreadsPerProcessor * Processors(),
                      TaskQueue::Tasks::kLong);
}

// An alarm's callback is a closure of the executor. While nobody passes the gate each of them makes
// a queue longer or starts a thread, and there are as many as that can go on for.
void StartLibraryThreads() {
  const auto gate = std::make_shared<Gate>();
  std::vector<::grpc::Alarm> alarms(kClosuresForAnother * kExecutorThreadsPerProcessor *
                                    Processors());
  const auto pass = [gate](bool) { gate->Pass(); };
  for (::grpc::Alarm& alarm : alarms) alarm.Set(::gpr_inf_past(GPR_CLOCK_REALTIME), pass);
  ::grpc::Alarm timer;
  timer.Set(std::chrono::system_clock::now() + kTimer, pass);
  gate->Open();
  // One that waits at a thread that is not there never does.
  if (!gate->WaitUntilPassed(alarms.size() + 1, Clock::now() + kMostTime)) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
}

}  // namespace refrain::server::rpc
