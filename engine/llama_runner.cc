#include "engine/llama_runner.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "engine/sampler.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<LlamaRunner>> LlamaRunner::Create(kernels::Backend& backend,
                                                                 LlamaModel& model,
                                                                 const kernels::KvPoolView& kv) {
  std::unique_ptr<LlamaRunner> runner(new LlamaRunner(backend, model, kv));
  absl::StatusOr<kernels::DeviceBuffer> logits =
      backend.device().Allocate(kLogitsRows * model.config().vocab_size * sizeof(float), false);
  if (!logits.ok()) return logits.status();
  runner->logits_ = *std::move(logits);
  return runner;
}

StepHandle LlamaRunner::Launch(const StepBatch& batch) {
  assert(!result_.has_value());
  result_ = Run(batch);
  return StepHandle{++launched_};
}

absl::StatusOr<StepResult> LlamaRunner::Run(const StepBatch& batch) {
  model_.Forward(batch, batch.tokens, kv_);
  StepResult result;
  result.rows.reserve(batch.logits.size());
  const int64_t vocab = model_.config().vocab_size;
  auto* logits = reinterpret_cast<float*>(logits_.data());
  std::vector<int32_t> rows;
  for (size_t begin = 0; begin < batch.logits.size(); begin += kLogitsRows) {
    const size_t end = std::min<size_t>(batch.logits.size(), begin + kLogitsRows);
    rows.clear();
    for (size_t i = begin; i < end; ++i) rows.push_back(batch.logits[i].row);
    model_.Logits(rows, kernels::F32View(logits, static_cast<int64_t>(rows.size()), vocab));
    absl::StatusOr<std::span<float>> read = ReadLogits(rows.size() * vocab);
    if (!read.ok()) return read.status();
    for (size_t i = begin; i < end; ++i) {
      result.rows.push_back(Choose(batch.logits[i], read->subspan((i - begin) * vocab, vocab)));
    }
  }
  if (absl::Status status = backend_.Synchronize(); !status.ok()) return status;
  return result;
}

absl::StatusOr<std::span<float>> LlamaRunner::ReadLogits(size_t count) {
  if (absl::Status status = backend_.Synchronize(); !status.ok()) return status;
  auto* logits = reinterpret_cast<float*>(logits_.data());
  if (backend_.info().reads_results_in_place) return std::span(logits, count);
  read_logits_.resize(count);
  absl::Status status = backend_.device().CopyToHost(
      reinterpret_cast<std::byte*>(read_logits_.data()), logits_.data(), count * sizeof(float));
  if (!status.ok()) return status;
  return std::span(read_logits_);
}

SampledToken LlamaRunner::Choose(const LogitsRow& wanted, std::span<float> logits) const {
  SampledToken out;
  LogprobRow row;
  if (wanted.sampler == nullptr) {
    out.token = wanted.prompt_next.has_value() ? *wanted.prompt_next : ArgMax(logits);
    row = ComputeLogprobs(logits, out.token, wanted.top_logprobs.value_or(0));
  } else if (!wanted.top_logprobs.has_value()) {
    out.token = wanted.sampler->Sample(logits);
    return out;
  } else {
    // Log-probabilities are those of the model, before the sampler changes the logits.
    std::vector<float> raw(logits.begin(), logits.end());
    out.token = wanted.sampler->Sample(logits);
    row = ComputeLogprobs(raw, out.token, *wanted.top_logprobs);
  }
  out.logprob = row.token;
  out.top = std::move(row.top);
  return out;
}

absl::StatusOr<StepResult> LlamaRunner::Collect(StepHandle handle) {
  assert(handle == StepHandle{launched_} && result_.has_value());
  absl::StatusOr<StepResult> result = *std::move(result_);
  result_.reset();
  return result;
}

}  // namespace refrain::engine
