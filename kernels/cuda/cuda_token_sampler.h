#ifndef REFRAIN_KERNELS_CUDA_CUDA_TOKEN_SAMPLER_H_
#define REFRAIN_KERNELS_CUDA_CUDA_TOKEN_SAMPLER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/backend_failure.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_arrays.h"
#include "kernels/cuda/step_clock.h"
#include "kernels/device.h"
#include "kernels/token_sampler.h"

namespace refrain::kernels::cuda {

// Sampling on the back end's stream. Every ended step copies the slots' tokens into a pinned array
// of its own, with an event behind, so that waiting for a step does not wait for the next one.
// What log-probabilities are asked for is read from pinned memory, and they are written there, by
// the kernel itself: few bytes of many logits, and no call waits for a copy of the one before.
// What it is made of outlives it. Threads and failure as TokenSampler.
class CudaTokenSampler final : public TokenSampler {
 public:
  static absl::StatusOr<std::unique_ptr<TokenSampler>> Create(const TokenSamplerOptions& options,
                                                              Runtime& runtime, Stream& stream,
                                                              Device& device, StepClock& clock,
                                                              BackendFailure& failure);
  ~CudaTokenSampler() override;

  const int32_t* sampled() const override { return reinterpret_cast<int32_t*>(sampled_.data()); }
  void Sample(const SampleArgs& args) override;
  void Logprobs(const LogprobsArgs& args) override;
  absl::Status EndStep() override;
  absl::StatusOr<SampledStep> AwaitStep() override;
  DeviceTimes times() override { return clock_.times(); }

 private:
  // Of one call of Logprobs; kept for a later step.
  struct LogprobsCall {
    std::byte* pinned = nullptr;  // entries, then rows
    size_t bytes = 0;             // there are
    size_t entries = 0;           // of the call
  };
  // One of as many as may be in flight.
  struct Ended {
    std::byte* tokens = nullptr;  // [num_slots] of int32_t, pinned
    std::unique_ptr<Event> copied;
    std::vector<LogprobsCall> calls;
    size_t num_calls = 0;  // of the step: the first ones
  };

  CudaTokenSampler(const TokenSamplerOptions& options, Runtime& runtime, Stream& stream,
                   Device& device, StepClock& clock, BackendFailure& failure);
  absl::Status Allocate();
  absl::Status Launch(const SampleArgs& args);
  absl::Status Launch(const LogprobsArgs& args);
  absl::Status MakeRoom(size_t bytes, LogprobsCall* call);
  Ended& current() { return ended_[num_ended_ % ended_.size()]; }
  size_t bytes() const { return static_cast<size_t>(options_.num_slots) * sizeof(int32_t); }

  const TokenSamplerOptions options_;
  Runtime& runtime_;
  Stream& stream_;
  Device& device_;
  StepClock& clock_;
  BackendFailure& failure_;
  UploadBuffer rows_;
  UploadBuffer edits_;
  UploadBuffer allowed_;
  DeviceBuffer allowed_logits_;
  DeviceBuffer sampled_;      // [num_slots] of int32_t
  std::vector<Ended> ended_;  // used in turn
  size_t num_ended_ = 0;      // so far
  size_t num_awaited_ = 0;
  std::vector<std::span<const LogprobEntry>> told_;  // of the step awaited last
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUDA_TOKEN_SAMPLER_H_
