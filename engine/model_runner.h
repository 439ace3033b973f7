#ifndef REFRAIN_ENGINE_MODEL_RUNNER_H_
#define REFRAIN_ENGINE_MODEL_RUNNER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/step_batch.h"
#include "kernels/device_times.h"

namespace refrain::engine {

// Names a launched step. Collect each exactly once, in launch order.
enum class StepHandle : uint64_t {};

// Runs steps of the model. States of a step: launched -> (the device works) -> collected. The
// caller keeps the batch's sampler states alive until it has collected; the batch itself may go
// after Launch. Engine thread only. Failure: a failed step is reported by Collect and leaves the
// sampler states as they were, and steps launched before that was collected fail too; later steps
// may still be launched unless the status is INTERNAL. RESOURCE_EXHAUSTED: memory for this step was
// short, a smaller one may run.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Most steps that may be launched and not yet collected: 1 where Launch computes, 2 where a
  // device works beside the host.
  virtual int max_in_flight() const = 0;
  virtual StepHandle Launch(const StepBatch& batch) = 0;
  // Waits for the step.
  virtual absl::StatusOr<StepResult> Collect(StepHandle handle) = 0;
  // Nobody needs this step's result or a later one's: they fail, CANCELLED, as soon as may be. For
  // runners whose steps can take seconds. Any thread.
  virtual void Abandon() {}
  // Of a device that works beside the host.
  virtual kernels::DeviceTimes device_times() { return {}; }
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_RUNNER_H_
