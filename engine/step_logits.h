#ifndef REFRAIN_ENGINE_STEP_LOGITS_H_
#define REFRAIN_ENGINE_STEP_LOGITS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/llama.h"
#include "engine/step_batch.h"
#include "kernels/backend.h"

namespace refrain::engine {

// Room for the logits of some rows of a step, and the way of logits to the host. A step that wants
// more rows takes them in pieces. Runners alone use it, on the engine thread; the back end and the
// model outlive it. Failure: Create when there is no memory for it, Read with what went wrong since
// the last time.
//
// A piece is computed as a whole, for its bits may depend on how many rows there are.
class StepLogits {
 public:
  static absl::StatusOr<std::unique_ptr<StepLogits>> Create(kernels::Backend& backend,
                                                            LlamaModel& model, int64_t rows);

  // Cuts a step's rows into pieces of what there is room for.
  std::vector<std::span<const LogitsRow>> Pieces(std::span<const LogitsRow> wanted) const;
  // Of the model's last Forward; [piece.size(), vocab_size].
  kernels::TensorView Compute(std::span<const LogitsRow> piece);
  // Waits for those computed last: [piece.size(), vocab_size], where the host can read and change
  // them until the next Compute or Read.
  absl::StatusOr<std::span<float>> Read();

 private:
  StepLogits(kernels::Backend& backend, LlamaModel& model, int64_t rows)
      : backend_(backend), model_(model), room_(rows) {}

  kernels::Backend& backend_;
  LlamaModel& model_;
  const int64_t room_;              // rows
  kernels::DeviceBuffer logits_;    // [room_, vocab_size]
  std::vector<int32_t> rows_;       // computed last
  std::vector<float> read_logits_;  // [rows, vocab_size] where they cannot be read in place
};

// A row's token with the log-probabilities that are wanted of it. `logits`: the model's own; read
// only where WantsLogprobs.
SampledToken Report(const LogitsRow& wanted, TokenId token, std::span<const float> logits);
bool WantsLogprobs(const LogitsRow& wanted);

// The token of a row that has no sampler.
TokenId UnsampledToken(const LogitsRow& wanted, std::span<const float> logits);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STEP_LOGITS_H_
