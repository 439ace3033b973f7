#ifndef REFRAIN_KERNELS_TOKEN_SAMPLER_H_
#define REFRAIN_KERNELS_TOKEN_SAMPLER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_times.h"
#include "kernels/sampling_args.h"

namespace refrain::kernels {

struct TokenSamplerOptions {
  int32_t num_slots = 0;
  int64_t vocab = 0;
  int max_in_flight = 2;  // steps ended and not yet awaited
};

// What an ended step leaves for the host. Valid until the next call of the sampler.
struct SampledStep {
  // The newest token of every slot at the step's end; what it did not sample is an older step's.
  std::span<const int32_t> newest;  // [num_slots]
  // Of each call of Logprobs, in order: its entries.
  std::span<const std::span<const LogprobEntry>> logprobs;
};

// Chooses tokens where the logits are and keeps each slot's newest one there, as the next step's
// input: so a step can be put on the device before the host has seen the tokens of the one before.
// Log-probabilities are computed there, too.
//
// States of a step: its operations, Sample and Logprobs -> EndStep (its tokens are on their way to
// the host) -> AwaitStep, in the same order. It belongs to the Backend that made it and is called
// as that is. Failure: EndStep tells of operations that could not be put on the device; that step
// has no tokens and is not awaited. AwaitStep fails when the device does, with INTERNAL, for good.
class TokenSampler {
 public:
  virtual ~TokenSampler() = default;

  // [num_slots], in the back end's memory: what EmbedArgs::sampled takes. -1 where the greatest
  // logit was infinite or all were NaN; Embed writes nothing for it.
  virtual const int32_t* sampled() const = 0;

  virtual void Sample(const SampleArgs& args) = 0;
  // Behind the Sample that chose the tokens it asks for, if any.
  virtual void Logprobs(const LogprobsArgs& args) = 0;
  virtual absl::Status EndStep() = 0;
  // Of the oldest step that was not awaited yet.
  virtual absl::StatusOr<SampledStep> AwaitStep() = 0;

  // Of the steps so far: a step is what RunStep of its back end began and EndStep ended.
  virtual DeviceTimes times() { return {}; }
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_TOKEN_SAMPLER_H_
