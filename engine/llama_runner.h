#ifndef REFRAIN_ENGINE_LLAMA_RUNNER_H_
#define REFRAIN_ENGINE_LLAMA_RUNNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device_chunk_mover.h"
#include "engine/model/llama.h"
#include "engine/model_runner.h"
#include "engine/step_logits.h"
#include "kernels/backend.h"

namespace refrain::engine {

// Runs steps of a Llama model: Launch computes, waits for the back end, samples on the host (on the
// back end's threads where it has some there) and keeps the result for Collect, so one step is in
// flight at most.
//
// Engine thread only. The back end, the model, the KV pool and its mover must outlive it.
class LlamaRunner : public ModelRunner {
 public:
  // Fails when the logits buffer cannot be had. Copies that wait in `mover` (may be null) belong to
  // the step that is launched next.
  static absl::StatusOr<std::unique_ptr<LlamaRunner>> Create(kernels::Backend& backend,
                                                             LlamaModel& model,
                                                             const kernels::KvPoolView& kv,
                                                             DeviceChunkMover* mover = nullptr);

  // Rows of logits computed at once: a vocabulary of 128k x 32 rows in f32 is 16 MiB.
  static constexpr int64_t kLogitsRows = 32;

  int max_in_flight() const override { return 1; }
  StepHandle Launch(const StepBatch& batch) override;
  absl::StatusOr<StepResult> Collect(StepHandle handle) override;
  void Abandon() override { abandoned_.request_stop(); }

 private:
  LlamaRunner(kernels::Backend& backend, LlamaModel& model, const kernels::KvPoolView& kv,
              DeviceChunkMover* mover, std::unique_ptr<StepLogits> logits)
      : backend_(backend), model_(model), kv_(kv), mover_(mover), logits_(std::move(logits)) {}

  absl::StatusOr<StepResult> Run(const StepBatch& batch);
  // Chooses tokens of rows for which the greatest logit is the answer, where the model finds it
  // without all logits; returns the other ones.
  std::vector<size_t> ChooseMostProbable(const StepBatch& batch, StepResult* result);
  SampledToken Choose(const LogitsRow& wanted, std::span<float> logits) const;

  // Of a row whose greatest logit is searched for without all of them: each costs a look at every
  // stretch of the vocabulary.
  static constexpr size_t kMostBans = 64;

  kernels::Backend& backend_;
  LlamaModel& model_;
  kernels::KvPoolView kv_;
  DeviceChunkMover* const mover_;
  std::unique_ptr<StepLogits> logits_;
  uint64_t launched_ = 0;
  std::stop_source abandoned_;
  std::optional<absl::StatusOr<StepResult>> result_;  // of the step launched last
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_LLAMA_RUNNER_H_
