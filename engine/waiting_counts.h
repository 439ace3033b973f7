#ifndef REFRAIN_ENGINE_WAITING_COUNTS_H_
#define REFRAIN_ENGINE_WAITING_COUNTS_H_

#include <cstdint>

#include "engine/running_request.h"

namespace refrain::engine {

// What the scheduler's queue does not tell of those that wait on the engine thread: which of its
// sequences are requests that have not run, and how many choices come into it once the first one of
// their request has the prompt. Told by the engine loop of what becomes of each request; one thread
// (the engine's). Cannot fail.
class WaitingCounts {
 public:
  void Arrived(const RunningRequest& request) {
    ++unstarted_requests_;
    choices_to_come_ += request.unmade_choices();
  }
  // Before a sequence of it runs (RunningRequest::Start).
  void Starts(const RunningRequest& request) {
    if (request.started()) return;
    --unstarted_requests_;
    held_choices_ += request.unmade_choices();
  }
  // Before its other choices are made, to wait or to end.
  void MakesChoices(const RunningRequest& request) {
    choices_to_come_ -= request.unmade_choices();
    if (request.started()) held_choices_ -= request.unmade_choices();
  }
  // It ends, its choices made.
  void Ends(const RunningRequest& request) {
    if (!request.started()) --unstarted_requests_;
  }

  int32_t unstarted_requests() const { return unstarted_requests_; }
  int32_t choices_to_come() const { return choices_to_come_; }
  // Of these, those whose prompt is being computed.
  int32_t held_choices() const { return held_choices_; }

 private:
  int32_t unstarted_requests_ = 0;
  int32_t choices_to_come_ = 0;
  int32_t held_choices_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_WAITING_COUNTS_H_
