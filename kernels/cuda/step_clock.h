#ifndef REFRAIN_KERNELS_CUDA_STEP_CLOCK_H_
#define REFRAIN_KERNELS_CUDA_STEP_CLOCK_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device_times.h"

namespace refrain::kernels::cuda {

// How long a stream has steps, and how long it waits for the host meanwhile, by timing events
// around what the host puts there at one go. A step comes in two goes: the forward pass, and, when
// the host knows the tokens of the step before, its sampling.
//
//   StepBegins -> HostLeaves -> HostReturns -> StepEnds -> (StepBegins of the next) -> StepAwaited
//
// The marks stand around a pass: where its kernels are launched one by one, a host that is late
// between two of them is not seen, but such passes are counted. HostReturns may be missing; a step
// that never ends, or is recorded instead of run, counts for nothing. Engine thread; runtime and
// stream outlive it. Cannot fail: an event that is refused ends the clock and nothing else.
class StepClock {
 public:
  StepClock(Runtime& runtime, Stream& stream) : runtime_(runtime), stream_(stream) {}

  void StepBegins();
  // Its kernels are launched one by one.
  void PassIsUnrecorded() { ++times_.unrecorded_steps; }
  void HostLeaves();
  void HostReturns();
  void StepEnds();
  // The host has waited for the oldest step that ended and was not awaited yet: what it launches
  // when none is left, the device could not have had before.
  void StepAwaited() { ++awaited_; }

  // Of what the device is through with.
  DeviceTimes times();

 private:
  enum class Point : uint8_t {
    kFirstStep,  // begins; the device had nothing to do before
    kNextStep,   // begins; there was one in flight
    kLeave,
    kReturn,
    kEnd,
  };
  struct Mark {
    Point point;
    std::unique_ptr<Event> event;
  };

  void Put(Point point);
  absl::Status Record(Mark& mark);
  void Add(Point before, Point now, double seconds);

  Runtime& runtime_;
  Stream& stream_;
  std::deque<Mark> marks_;  // in the stream's order; the first has been counted up to
  std::vector<std::unique_ptr<Event>> free_events_;
  DeviceTimes times_;
  DeviceTimes open_;  // of the step at the front of marks_
  uint64_t ended_ = 0, awaited_ = 0;
  bool in_step_ = false;
  bool stopped_ = false;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STEP_CLOCK_H_
