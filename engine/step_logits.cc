#include "engine/step_logits.h"

#include <algorithm>
#include <cassert>
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

absl::StatusOr<std::span<const std::span<float>>> StepLogits::Read(
    std::span<const LogitsRow> piece, bool (*wanted)(const LogitsRow&)) {
  assert(piece.size() == rows_.size());
  if (absl::Status status = backend_.Synchronize(); !status.ok()) return status;
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  const bool in_place = backend_.info().reads_results_in_place;
  auto* const computed = reinterpret_cast<float*>(logits_.data());
  const auto count = static_cast<size_t>(std::count_if(piece.begin(), piece.end(), wanted));
  if (!in_place && read_logits_.size() < count * vocab) read_logits_.resize(count * vocab);
  float* copied = read_logits_.data();
  read_rows_.assign(piece.size(), {});
  for (size_t begin = 0, end; begin < piece.size(); begin = end + 1) {
    // Rows side by side go by one copy.
    for (end = begin; end < piece.size() && wanted(piece[end]);) ++end;
    if (end == begin) continue;
    const size_t floats = (end - begin) * vocab;
    float* const from = computed + begin * vocab;
    float* const at = in_place ? from : std::exchange(copied, copied + floats);
    for (size_t i = begin; i < end; ++i) read_rows_[i] = {at + (i - begin) * vocab, vocab};
    if (in_place) continue;
    absl::Status status =
        backend_.device().CopyToHost(reinterpret_cast<std::byte*>(at),
                                     reinterpret_cast<std::byte*>(from), floats * sizeof(float));
    if (!status.ok()) return status;
  }
  return std::span<const std::span<float>>(read_rows_);
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
