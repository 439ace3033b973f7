#ifndef REFRAIN_TOOLS_LOADGEN_LOAD_RUN_H_
#define REFRAIN_TOOLS_LOADGEN_LOAD_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "tools/loadgen/arrivals.h"
#include "tools/loadgen/backend.h"
#include "tools/loadgen/event_loop.h"
#include "tools/loadgen/recorder.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

enum class LoopKind {
  kOpen,    // sessions begin when `arrivals` says, whatever the server does
  kTrace,   // sessions begin when the workload says
  kClosed,  // `users` at a time, each begins a session when its last one has ended; who was turned
            // away (nobody listens, or no room) when it was told to come back, or a little later
};

struct LoadOptions {
  LoopKind kind = LoopKind::kOpen;
  ArrivalOptions arrivals;
  double trace_speed = 1;  // 2: twice as fast as recorded
  int32_t users = 1;
  int64_t most_requests = 0;   // 0: no limit
  double duration_s = 0;       // in which requests are planned; 0: no limit
  double drain_s = 60;         // after the last was due; what is under way then is "unfinished"
  int32_t most_in_flight = 0;  // others wait here, which counts as their latency; 0: no limit
  PromptForm form = PromptForm::kTokenIds;  // of sessions without their own
  // Whether what a turn asks for is the limit that its request has: usage above it is then untrue.
  bool sets_most_tokens = true;
};

// Puts one load on a server, from the first request to the end of the last.
//
// A request has a planned time: the arrival, or for a later turn the end of the answer before plus
// the time to think, or in a closed loop when its user is free. Latency counts from there however
// late it can be sent, so that a server that stalls, and this program when it is too slow, cannot
// hide the requests that should have come meanwhile (coordinated omission). What is sent next is
// encoded before its time.
//
// One use, one thread: Run returns when all is over. It fails when the workload does (what is under
// way then may end, as at any end), when a conversation in token ids cannot go on because answers
// carry none, and when it is aborted; what was recorded stays.
class LoadRun {
 public:
  LoadRun(const LoadOptions& options, Workload* workload, Backend* backend, EventLoop* loop,
          Recorder* recorder);
  ~LoadRun();

  // Called five times a second with the seconds since the beginning.
  void OnProgress(std::function<void(double elapsed_s)> call);

  absl::Status Run();
  // From inside of Run, OnProgress say: what is under way ends now, as "unfinished", and Run
  // returns `why`.
  void Abort(const absl::Status& why);

  double begin_s() const;  // in the loop's time
  bool ran_out() const;    // the workload ended before the requests or the time did

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_LOAD_RUN_H_
