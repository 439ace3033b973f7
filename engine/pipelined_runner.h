#ifndef REFRAIN_ENGINE_PIPELINED_RUNNER_H_
#define REFRAIN_ENGINE_PIPELINED_RUNNER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/llama.h"
#include "engine/model_runner.h"
#include "engine/step_logits.h"
#include "kernels/backend.h"
#include "kernels/token_sampler.h"

namespace refrain::engine {

// Runs steps of a Llama model on a device that chooses the tokens itself, two in flight: Launch
// puts a step on the device behind the one that still runs, whose tokens it takes from there.
//
// A step on the device: its forward pass, with ids of the step before read from the device -> the
// host learns the tokens of the step before, for penalties and for counting (the device has the new
// forward pass to do meanwhile) -> logits, sampling, log-probabilities -> these and the tokens on
// their way to the host.
//
// Every token is chosen on the device, whatever else is asked of it, so that a request gets the
// same ones alone or beside others, with or without log-probabilities. Sampling changes logits in
// place where there are penalties, bias or bans; log-probabilities are of the model's own, which
// are computed once more then.
//
// Engine thread only. Back end, model, sampler and KV pool outlive it. Failure: a step that could
// not be put on the device fails, and so do those launched behind it before it was collected.
class PipelinedRunner : public ModelRunner {
 public:
  // `num_slots` and two steps in flight are what the sampler was made for. Fails when the logits
  // buffer cannot be had.
  static absl::StatusOr<std::unique_ptr<PipelinedRunner>> Create(
      kernels::Backend& backend, LlamaModel& model, const kernels::KvPoolView& kv,
      std::unique_ptr<kernels::TokenSampler> sampler, int32_t num_slots);

  int max_in_flight() const override { return kMaxInFlight; }
  StepHandle Launch(const StepBatch& batch) override;
  absl::StatusOr<StepResult> Collect(StepHandle handle) override;
  kernels::DeviceTimes device_times() override { return sampler_->times(); }

  static constexpr int kMaxInFlight = 2;

 private:
  // launched (no result: the device works) -> finished (result). At most the newest is not
  // finished.
  struct Step {
    std::vector<LogitsRow> logits;
    std::vector<int32_t> slots;  // of each
    std::optional<absl::StatusOr<StepResult>> result;
  };

  PipelinedRunner(LlamaModel& model, const kernels::KvPoolView& kv,
                  std::unique_ptr<kernels::TokenSampler> sampler,
                  std::unique_ptr<StepLogits> logits)
      : model_(model), kv_(kv), sampler_(std::move(sampler)), logits_(std::move(logits)) {}

  // tokens_ of the batch, those of the step before as ids of slots.
  void FillIds(const StepBatch& batch);
  void SampleRows(const Step& step);
  // What step.logits[i] asks for as a row of the piece's logits, into logprobs_rows_.
  void AskForLogprobs(const LogitsRow& wanted, int32_t logits_row, int32_t slot);
  void Finish(Step& step);
  absl::StatusOr<StepResult> Result(const Step& step);

  LlamaModel& model_;
  kernels::KvPoolView kv_;
  std::unique_ptr<kernels::TokenSampler> sampler_;
  std::unique_ptr<StepLogits> logits_;
  std::deque<Step> in_flight_;
  uint64_t launched_ = 0;
  uint64_t collected_ = 0;

  std::vector<int32_t> tokens_;  // scratch
  std::vector<kernels::SamplingRow> rows_;
  std::vector<kernels::LogitEdit> edits_;
  std::vector<int32_t> allowed_;
  std::vector<kernels::LogprobsRow> logprobs_rows_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PIPELINED_RUNNER_H_
