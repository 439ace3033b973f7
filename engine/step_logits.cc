#include "engine/step_logits.h"

#include <algorithm>
#include <utility>

#include "engine/sampler.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<StepLogits>> StepLogits::Create(kernels::Backend& backend,
                                                               LlamaModel& model, int64_t rows) {
  std::unique_ptr<StepLogits> made(new StepLogits(backend, model, rows));
  absl::StatusOr<kernels::DeviceBuffer> logits = backend.device().Allocate(
      static_cast<size_t>(rows * model.config().vocab_size) * sizeof(float), false);
  if (!logits.ok()) return logits.status();
  made->logits_ = *std::move(logits);
  return made;
}

std::vector<std::span<const LogitsRow>> StepLogits::Pieces(
    std::span<const LogitsRow> wanted) const {
  std::vector<std::span<const LogitsRow>> pieces;
  while (!wanted.empty()) {
    const size_t count = std::min(wanted.size(), static_cast<size_t>(room_));
    pieces.push_back(wanted.first(count));
    wanted = wanted.subspan(count);
  }
  return pieces;
}

kernels::TensorView StepLogits::Compute(std::span<const LogitsRow> piece) {
  rows_.clear();
  for (const LogitsRow& wanted : piece) rows_.push_back(wanted.row);
  const kernels::TensorView out =
      kernels::F32View(reinterpret_cast<float*>(logits_.data()), static_cast<int64_t>(rows_.size()),
                       model_.config().vocab_size);
  model_.Logits(rows_, out);
  return out;
}

absl::StatusOr<std::span<float>> StepLogits::Read() {
  if (absl::Status status = backend_.Synchronize(); !status.ok()) return status;
  const size_t floats = rows_.size() * static_cast<size_t>(model_.config().vocab_size);
  if (backend_.info().reads_results_in_place) {
    return std::span(reinterpret_cast<float*>(logits_.data()), floats);
  }
  if (read_logits_.size() < floats) read_logits_.resize(floats);
  absl::Status status = backend_.device().CopyToHost(
      reinterpret_cast<std::byte*>(read_logits_.data()), logits_.data(), floats * sizeof(float));
  if (!status.ok()) return status;
  return std::span(read_logits_).first(floats);
}

bool WantsLogprobs(const LogitsRow& wanted) {
  return wanted.sampler == nullptr || wanted.top_logprobs.has_value();
}

SampledToken Report(const LogitsRow& wanted, TokenId token, std::span<const float> logits) {
  SampledToken out;
  out.token = token;
  if (!WantsLogprobs(wanted) || token == kNoToken) return out;
  LogprobRow row = ComputeLogprobs(logits, token, wanted.top_logprobs.value_or(0));
  out.logprob = row.token;
  out.top = std::move(row.top);
  return out;
}

TokenId UnsampledToken(const LogitsRow& wanted, std::span<const float> logits) {
  return wanted.prompt_next.has_value() ? *wanted.prompt_next : ArgMax(logits);
}

}  // namespace refrain::engine
