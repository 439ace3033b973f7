#ifndef REFRAIN_SERVER_GRPC_LIBRARY_THREADS_H_
#define REFRAIN_SERVER_GRPC_LIBRARY_THREADS_H_

#include <grpcpp/alarm.h>

#include <chrono>
#include <memory>
#include <vector>

namespace refrain::server::rpc {

// gRPC takes no notice of a thread that the system refuses it: one that it starts with ends the
// process, or hangs as it ends; one that it starts when there is much to do, up to two for each
// processor, gets work all the same, which is then never done, and its clients wait for ever. So
// all that it may want are tried before it starts, and those that it would start later are started
// at once: from then on it serves without new ones. Its timers may still ask for some; a refused
// one delays nothing until gRPC ends, which then never does: the end behind a drain has a bound
// (StopSignals).
//
// Both throw std::system_error where the system refuses a thread (WithThreads). On any thread.

// Starts as many as gRPC may ever want, and ends them. Before gRPC starts.
void RehearseLibraryThreads();

// Has gRPC start all that it may want. When it has started, before there are connections: what it
// does beside waits for that, some milliseconds.
void StartLibraryThreads();

// Something to do for each thread of gRPC's executor, to see whether they do it; it costs some
// microseconds for each. For one thread.
class ExecutorRound {
 public:
  ExecutorRound();   // gives it to them
  ~ExecutorRound();  // waits for nothing

  // False where some of them have not at `deadline`.
  bool WaitUntilDone(std::chrono::steady_clock::time_point deadline);

 private:
  class Arrivals;

  const std::shared_ptr<Arrivals> arrivals_;
  std::vector<::grpc::Alarm> alarms_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_LIBRARY_THREADS_H_
