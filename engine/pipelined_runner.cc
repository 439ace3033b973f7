#include "engine/pipelined_runner.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "engine/sampler.h"

namespace refrain::engine {
namespace {

// A step's sampling is one launch as long as its logits lie in memory side by side.
constexpr int64_t kMostLogitsBytes = int64_t{256} << 20;
constexpr int64_t kLeastLogitsRows = 8;

bool AnyWantsLogprobs(std::span<const LogitsRow> rows) {
  return std::any_of(rows.begin(), rows.end(), &WantsLogprobs);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelinedRunner>> PipelinedRunner::Create(
    kernels::Backend& backend, LlamaModel& model, const kernels::KvPoolView& kv,
    std::unique_ptr<kernels::TokenSampler> sampler, int32_t num_slots) {
  const int64_t row_bytes = model.config().vocab_size * static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::clamp(kMostLogitsBytes / row_bytes, kLeastLogitsRows,
                                  std::max<int64_t>(num_slots, kLeastLogitsRows));
  absl::StatusOr<std::unique_ptr<StepLogits>> logits = StepLogits::Create(backend, model, rows);
  if (!logits.ok()) return logits.status();
  return std::unique_ptr<PipelinedRunner>(
      new PipelinedRunner(model, kv, std::move(sampler), *std::move(logits)));
}

StepHandle PipelinedRunner::Launch(const StepBatch& batch) {
  assert(in_flight_.size() < kMaxInFlight);
  Step step{batch.logits, batch.logits_slots, {}};
  Step* const before = in_flight_.empty() ? nullptr : &in_flight_.back();
  // The forward pass overwrites the hidden states that its logits come from.
  if (before != nullptr && AnyWantsLogprobs(before->logits)) Finish(*before);
  if (before != nullptr && before->result.has_value() && !before->result->ok()) {
    step.result = before->result->status();
  } else {
    FillIds(batch);
    model_.Forward(batch, tokens_, kv_, sampler_->sampled());
    if (before != nullptr) Finish(*before);
    SampleRows(step);
    if (absl::Status status = sampler_->EndStep(); !status.ok()) step.result = status;
  }
  in_flight_.push_back(std::move(step));
  return StepHandle{++launched_};
}

void PipelinedRunner::FillIds(const StepBatch& batch) {
  tokens_ = batch.tokens;
  for (size_t slot = 0; slot < batch.slots.size(); ++slot) {
    const kernels::SlotStep& rows = batch.slots[slot];
    for (int32_t row = rows.row_begin; row < rows.row_begin + rows.num_rows; ++row) {
      int32_t& token = tokens_[static_cast<size_t>(row)];
      if (token == StepBatch::kFromPreviousStep) {
        token = kernels::IdOfSlot(static_cast<int32_t>(slot));
      }
    }
  }
}

void PipelinedRunner::SampleRows(const Step& step) {
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  size_t begin = 0;
  for (const std::span<const LogitsRow> piece : logits_->Pieces(step.logits)) {
    rows_.clear();
    edits_.clear();
    allowed_.clear();
    for (size_t i = 0; i < piece.size(); ++i) {
      if (piece[i].sampler == nullptr) continue;
      kernels::SamplingRow row = piece[i].sampler->DeviceRow(vocab, &edits_, &allowed_);
      row.logits_row = static_cast<int32_t>(i);
      row.slot = step.slots[begin + i];
      rows_.push_back(row);
    }
    begin += piece.size();
    if (!rows_.empty()) sampler_->Sample({rows_, edits_, allowed_, logits_->Compute(piece)});
  }
}

void PipelinedRunner::Finish(Step& step) {
  if (!step.result.has_value()) step.result = Result(step);
}

absl::StatusOr<StepResult> PipelinedRunner::Result(const Step& step) {
  absl::StatusOr<std::span<const int32_t>> sampled = sampler_->AwaitStep();
  if (!sampled.ok()) return sampled.status();
  StepResult result;
  result.rows.reserve(step.logits.size());
  for (const std::span<const LogitsRow> piece : logits_->Pieces(step.logits)) {
    std::span<const std::span<float>> logits;  // of each row; none at all where nobody wants any
    if (AnyWantsLogprobs(piece)) {
      logits_->Compute(piece);
      const auto read = logits_->Read(piece, &WantsLogprobs);
      if (!read.ok()) return read.status();
      logits = *read;
    }
    for (size_t i = 0; i < piece.size(); ++i) {
      const std::span<const float> own = logits.empty() ? std::span<float>() : logits[i];
      const auto slot = static_cast<size_t>(step.slots[result.rows.size()]);
      const TokenId token =
          piece[i].sampler != nullptr ? TokenId{(*sampled)[slot]} : UnsampledToken(piece[i], own);
      result.rows.push_back(Report(piece[i], token, own));
    }
  }
  for (size_t i = 0; i < result.rows.size(); ++i) {
    SamplerState* const sampler = step.logits[i].sampler;
    if (sampler != nullptr) sampler->Count(result.rows[i].token);
  }
  return result;
}

absl::StatusOr<StepResult> PipelinedRunner::Collect(StepHandle handle) {
  ++collected_;
  assert(handle == StepHandle{collected_} && !in_flight_.empty());
  Finish(in_flight_.front());
  absl::StatusOr<StepResult> result = *std::move(in_flight_.front().result);
  in_flight_.pop_front();
  return result;
}

}  // namespace refrain::engine
