#ifndef REFRAIN_SERVER_STOP_SIGNALS_H_
#define REFRAIN_SERVER_STOP_SIGNALS_H_

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "engine/annotated_mutex.h"

namespace refrain::server {

// Blocks the signals that StopSignals waits for, in this thread and those it starts from now on.
// What a write that fails sends beside its error is ignored: nobody reads on, or a file has the
// size that files may have.
void BlockStopSignals();

// What the main thread waits for: SIGTERM or SIGINT, which end the daemon, or the end of the work
// that runs beside it (loading, draining). SIGHUP calls `on_hangup` and goes on waiting.
// NotifyWorkDone on any thread, the rest on one.
//
// Behind the last wait, what ends may take its time, or hang. EndWithin listens in its place, on a
// thread that there is from the beginning: when it is needed there may be none to be had.
class StopSignals {
 public:
  enum class Event { kSignal, kWorkDone, kTimeout };

  // Blocks the signals. Throws std::system_error where the system refuses the thread or a file:
  // without its files it would be deaf.
  explicit StopSignals(std::function<void()> on_hangup);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void NotifyWorkDone();
  // Without a limit there is no kTimeout.
  Event Wait(std::optional<std::chrono::milliseconds> limit = std::nullopt);
  // From now on another SIGTERM or SIGINT, or that `limit` has passed before this is destroyed,
  // calls `end` with kSignal or kTimeout, once, on the other thread: it ends the process. Once, and
  // behind it no Wait.
  void EndWithin(std::chrono::milliseconds limit, std::function<void(Event)> end);

 private:
  // Closed with it.
  class File {
   public:
    // Throws what errno says where there is none (-1).
    explicit File(int number);
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int get() const { return number_; }

   private:
    const int number_;
  };

  void Listen();
  // kWorkDone: it is destroyed.
  Event WaitForEnd(std::chrono::steady_clock::time_point deadline) const;

  const std::function<void()> on_hangup_;
  const File work_done_;
  const File signals_;
  const File destroyed_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool ends_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point deadline_ REFRAIN_GUARDED_BY(mutex_);
  std::function<void(Event)> end_ REFRAIN_GUARDED_BY(mutex_);  // empty before EndWithin
  std::thread listener_;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_STOP_SIGNALS_H_
