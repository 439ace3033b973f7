#ifndef REFRAIN_SERVER_STOP_SIGNALS_H_
#define REFRAIN_SERVER_STOP_SIGNALS_H_

#include <functional>

namespace refrain::server {

// Blocks the signals that StopSignals waits for, in this thread and those it starts from now on.
// What a write that fails sends beside its error is ignored: nobody reads on, or a file has the
// size that files may have.
void BlockStopSignals();

// What the main thread waits for: SIGTERM or SIGINT, which end the daemon, or the end of the work
// that runs beside it (loading, draining). SIGHUP calls `on_hangup` and goes on waiting.
// NotifyWorkDone on any thread, the rest on one.
class StopSignals {
 public:
  enum class Event { kSignal, kWorkDone };

  explicit StopSignals(std::function<void()> on_hangup);  // blocks the signals
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void NotifyWorkDone();
  Event Wait();

 private:
  const std::function<void()> on_hangup_;
  const int work_done_;
  const int signals_;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_STOP_SIGNALS_H_
