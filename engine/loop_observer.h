#ifndef REFRAIN_ENGINE_LOOP_OBSERVER_H_
#define REFRAIN_ENGINE_LOOP_OBSERVER_H_

#include <cstdint>
#include <vector>

#include "engine/clock.h"
#include "engine/engine_observer.h"
#include "engine/request_timing.h"
#include "engine/step_batch.h"
#include "engine/step_builder.h"

namespace refrain::engine {

// Turns what the loop does into what an EngineObserver is told: keeps the times, counts rows and
// keys. Does nothing, and reads no clock, without an observer. Engine thread only; cannot fail.
class LoopObserver {
 public:
  // Both outlive it; `observer` may be null.
  LoopObserver(EngineObserver* observer, const Clock* clock, int32_t chunk_tokens)
      : observer_(observer), clock_(clock), chunk_tokens_(chunk_tokens) {}

  // --- steps ---
  void PlanBegins() {
    if (observer_ != nullptr) plan_begin_ = clock_->Now();
  }
  void PlanEnds();
  void Launched(const LaunchedStep& step, const StepBatch& batch);
  // The tokens that follow came with this step.
  void Collected() {
    if (observer_ != nullptr) collected_ = clock_->Now();
  }
  // A turn that launched.
  void TurnEnds(double turn_seconds, double model_seconds, double planning_seconds);

  // --- requests ---
  void Arrived(RunningRequest* request);
  void Started(RunningRequest* request);  // once
  // One that its consumer will see, sooner or later.
  void Token(RunningRequest* request, int32_t choice);
  // Its last batch was sent.
  void Ended(const RunningRequest& request);

 private:
  void ListChoices(const RequestTiming& timing);

  EngineObserver* const observer_;
  const Clock* const clock_;
  const int32_t chunk_tokens_;
  Clock::TimePoint plan_begin_;
  Clock::TimePoint collected_;
  StepObservation step_;
  std::vector<ChoiceObservation> choices_;  // kept for its memory
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_LOOP_OBSERVER_H_
