#include "kernels/cuda/step_clock.h"

#include <utility>

#include "absl/status/statusor.h"

namespace refrain::kernels::cuda {

void StepClock::StepBegins() {
  Put(ended_ > awaited_ ? Point::kNextStep : Point::kFirstStep);
  in_step_ = true;
}

void StepClock::HostLeaves() {
  if (in_step_) Put(Point::kLeave);
}

void StepClock::HostReturns() {
  if (in_step_) Put(Point::kReturn);
}

void StepClock::StepEnds() {
  ++ended_;
  if (in_step_) Put(Point::kEnd);
  in_step_ = false;
}

void StepClock::Put(Point point) {
  if (stopped_ || runtime_.IsCapturing(stream_)) return;
  times();
  Mark mark{point, nullptr};
  if (Record(mark).ok()) {
    marks_.push_back(std::move(mark));
  } else {
    stopped_ = true;
  }
}

absl::Status StepClock::Record(Mark& mark) {
  if (!free_events_.empty()) {
    mark.event = std::move(free_events_.back());
    free_events_.pop_back();
  } else {
    absl::StatusOr<std::unique_ptr<Event>> made = runtime_.CreateTimingEvent();
    if (!made.ok()) return made.status();
    mark.event = *std::move(made);
  }
  return runtime_.Record(*mark.event, stream_);
}

DeviceTimes StepClock::times() {
  while (!stopped_ && marks_.size() > 1) {
    Mark& before = marks_[0];
    const Mark& now = marks_[1];
    const absl::StatusOr<bool> passed = runtime_.HasPassed(*now.event);
    if (!passed.ok()) stopped_ = true;
    if (!passed.ok() || !*passed) break;
    const absl::StatusOr<float> ms = runtime_.MillisecondsBetween(*before.event, *now.event);
    if (!ms.ok()) {
      stopped_ = true;
      break;
    }
    Add(before.point, now.point, *ms * 1e-3);
    free_events_.push_back(std::move(before.event));
    marks_.pop_front();
  }
  return times_;
}

void StepClock::Add(Point before, Point now, double seconds) {
  if (now == Point::kFirstStep) {  // of the step before, if it did not end, nobody knows how long
    open_ = {};
    return;
  }
  const bool between_steps = now == Point::kNextStep;
  if (between_steps && before != Point::kEnd) {
    open_ = {};
    return;
  }
  open_.step_seconds += seconds;
  if (between_steps || now == Point::kReturn) open_.idle_seconds += seconds;
  if (now != Point::kEnd) return;
  times_.step_seconds += open_.step_seconds;
  times_.idle_seconds += open_.idle_seconds;
  open_ = {};
}

}  // namespace refrain::kernels::cuda
