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

// The step's entries of log-probabilities, row by row.
class EntryReader {
 public:
  explicit EntryReader(std::span<const std::span<const kernels::LogprobEntry>> calls)
      : calls_(calls) {}

  std::span<const kernels::LogprobEntry> Take(int32_t top) {
    while (left_.empty()) {
      assert(!calls_.empty());
      left_ = calls_.front();
      calls_ = calls_.subspan(1);
    }
    const size_t count = 1 + static_cast<size_t>(top);
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }

 private:
  std::span<const std::span<const kernels::LogprobEntry>> calls_;
  std::span<const kernels::LogprobEntry> left_;
};

bool IsBetter(const kernels::LogprobEntry& a, const kernels::LogprobEntry& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The token of a row with what was told of it: its own entry, then those of the most probable.
SampledToken FromEntries(std::span<const kernels::LogprobEntry> entries) {
  SampledToken out;
  out.token = TokenId{entries[0].token};
  if (out.token == kNoToken) return out;
  out.logprob = {out.token, entries[0].logprob, entries[0].rank};
  std::vector<kernels::LogprobEntry> top(entries.begin() + 1, entries.end());
  std::erase_if(top, [](const kernels::LogprobEntry& entry) { return entry.token < 0; });
  std::sort(top.begin(), top.end(), IsBetter);
  for (const kernels::LogprobEntry& entry : top) {
    out.top.push_back(
        {TokenId{entry.token}, entry.logprob, static_cast<int32_t>(out.top.size()) + 1});
  }
  return out;
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

void PipelinedRunner::AskForLogprobs(const LogitsRow& wanted, int32_t logits_row, int32_t slot) {
  using kernels::LogprobsRow;
  LogprobsRow row{.top = wanted.top_logprobs.value_or(0), .logits_row = logits_row, .slot = slot};
  if (wanted.sampler == nullptr) {
    row.token = wanted.prompt_next.has_value() ? static_cast<int32_t>(*wanted.prompt_next)
                                               : LogprobsRow::kMostProbable;
  }
  if (!logprobs_rows_.empty()) {
    const LogprobsRow& before = logprobs_rows_.back();
    row.entry_begin = before.entry_begin + 1 + before.top;
  }
  logprobs_rows_.push_back(row);
}

void PipelinedRunner::SampleRows(const Step& step) {
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  size_t begin = 0;
  for (const std::span<const LogitsRow> piece : logits_->Pieces(step.logits)) {
    rows_.clear();
    edits_.clear();
    allowed_.clear();
    logprobs_rows_.clear();
    bool changed = false;  // what log-probabilities are wanted of
    for (size_t i = 0; i < piece.size(); ++i) {
      const auto logits_row = static_cast<int32_t>(i);
      const int32_t slot = step.slots[begin + i];
      if (piece[i].sampler != nullptr) {
        kernels::SamplingRow row = piece[i].sampler->DeviceRow(vocab, &edits_, &allowed_);
        row.logits_row = logits_row;
        row.slot = slot;
        rows_.push_back(row);
        const bool edited = row.edit_begin < row.edit_end || row.allowed_begin < row.allowed_end;
        changed = changed || (edited && WantsLogprobs(piece[i]));
      }
      if (WantsLogprobs(piece[i])) AskForLogprobs(piece[i], logits_row, slot);
    }
    begin += piece.size();
    const kernels::TensorView logits = logits_->Compute(piece);
    if (!rows_.empty()) sampler_->Sample({rows_, edits_, allowed_, logits});
    if (changed) logits_->Compute(piece);
    if (!logprobs_rows_.empty()) sampler_->Logprobs({logprobs_rows_, logits});
  }
}

void PipelinedRunner::Finish(Step& step) {
  if (!step.result.has_value()) step.result = Result(step);
}

absl::StatusOr<StepResult> PipelinedRunner::Result(const Step& step) {
  const absl::StatusOr<kernels::SampledStep> sampled = sampler_->AwaitStep();
  if (!sampled.ok()) return sampled.status();
  EntryReader entries(sampled->logprobs);
  StepResult result;
  result.rows.reserve(step.logits.size());
  for (size_t i = 0; i < step.logits.size(); ++i) {
    const LogitsRow& wanted = step.logits[i];
    if (WantsLogprobs(wanted)) {
      result.rows.push_back(FromEntries(entries.Take(wanted.top_logprobs.value_or(0))));
    } else {
      result.rows.push_back(
          {.token = TokenId{sampled->newest[static_cast<size_t>(step.slots[i])]}});
    }
  }
  for (size_t i = 0; i < result.rows.size(); ++i) {
    SamplerState* const sampler = step.logits[i].sampler;
    if (sampler != nullptr) result.rows[i].output = sampler->Count(result.rows[i].token);
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
