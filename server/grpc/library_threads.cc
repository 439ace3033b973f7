#include "server/grpc/library_threads.h"

#include <alloca.h>
#include <grpc/support/cpu.h>

#include <algorithm>
#include <functional>
#include <system_error>

#include "engine/annotated_mutex.h"
#include "server/task_queue.h"

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

// gRPC starts with so many at most, and as many as there are processors, up to a bound.
constexpr int kThreadsOfLibrary = 12;
constexpr int kMostThreadsByProcessors = 32;
// Its executor (src/core/lib/iomgr/executor.cc) has one at first, and starts another when so many
// closures or more wait for one.
constexpr size_t kClosuresForAnother = 3;
// Which thread gets a closure follows from where on the stack it is queued. So many for each, from
// places this far apart, miss none with 2 to 96 processors; one did miss a fourth of them.
constexpr size_t kClosuresOfRound = 2;
constexpr size_t kStackStep = 16;
// Some milliseconds suffice, but for a machine that is overloaded.
constexpr std::chrono::seconds kMostTime{20};
// The timer's first thread starts a second one when a timer first expires.
constexpr std::chrono::milliseconds kTimer{1};

// Those that are offline count, too, as gRPC has it.
size_t Processors() { return ::gpr_cpu_num_cores(); }

size_t ExecutorThreads() { return 2 * Processors(); }

// An alarm's callback is a closure of the executor.
void Enqueue(const std::function<void(bool)>& closure, ::grpc::Alarm* alarm) {
  alarm->Set(::gpr_inf_past(GPR_CLOCK_REALTIME), closure);
}

// AddressSanitizer would make its steps another's.
[[gnu::noinline, gnu::no_sanitize_address]] void EnqueueFurtherDown(
    size_t bytes, const std::function<void(bool)>& closure, ::grpc::Alarm* alarm) {
  auto* const room = static_cast<volatile char*>(alloca(bytes + 1));
  room[0] = 0;
  Enqueue(closure, alarm);
}

// What the executor's threads wait at.
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
  TaskQueue rehearsal(
      kThreadsOfLibrary +
          static_cast<int>(std::min<size_t>(Processors(), kMostThreadsByProcessors) +
                           ExecutorThreads()),
      TaskQueue::Tasks::kLong);
}

// While nobody passes the gate, each closure makes a queue longer or starts a thread, and there are
// as many as that can go on for.
void StartLibraryThreads() {
  const auto gate = std::make_shared<Gate>();  // outlives a wait that was given up
  const std::function<void(bool)> pass = [gate](bool) { gate->Pass(); };
  std::vector<::grpc::Alarm> alarms(kClosuresForAnother * ExecutorThreads());
  for (::grpc::Alarm& alarm : alarms) Enqueue(pass, &alarm);
  ::grpc::Alarm timer;
  timer.Set(std::chrono::system_clock::now() + kTimer, pass);
  gate->Open();
  // What waits for a thread that is not there waits for ever.
  const Clock::time_point deadline = Clock::now() + kMostTime;
  if (gate->WaitUntilPassed(alarms.size() + 1, deadline) &&
      ExecutorRound().WaitUntilDone(deadline)) {
    return;
  }
  throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
}

class ExecutorRound::Arrivals : public Gate {};

ExecutorRound::ExecutorRound()
    : arrivals_(std::make_shared<Arrivals>()), alarms_(kClosuresOfRound * ExecutorThreads()) {
  arrivals_->Open();
  const std::function<void(bool)> arrive = [arrivals = arrivals_](bool) { arrivals->Pass(); };
  size_t bytes = 0;
  for (::grpc::Alarm& alarm : alarms_) EnqueueFurtherDown(bytes += kStackStep, arrive, &alarm);
}

ExecutorRound::~ExecutorRound() = default;

bool ExecutorRound::WaitUntilDone(Clock::time_point deadline) {
  return arrivals_->WaitUntilPassed(alarms_.size(), deadline);
}

}  // namespace refrain::server::rpc
