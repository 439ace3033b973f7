#include "engine/llama_runner.h"

#include <cassert>
#include <new>
#include <utility>
#include <vector>

#include "engine/sampler.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<LlamaRunner>> LlamaRunner::Create(kernels::Backend& backend,
                                                                 LlamaModel& model,
                                                                 const kernels::KvPoolView& kv,
                                                                 DeviceChunkMover* mover) {
  absl::StatusOr<std::unique_ptr<StepLogits>> logits =
      StepLogits::Create(backend, model, kLogitsRows);
  if (!logits.ok()) return logits.status();
  return std::unique_ptr<LlamaRunner>(
      new LlamaRunner(backend, model, kv, mover, *std::move(logits)));
}

StepHandle LlamaRunner::Launch(const StepBatch& batch) {
  assert(!result_.has_value());
  try {
    result_ = Run(batch);
  } catch (const std::bad_alloc&) {  // of scratch that grows with steps
    result_ = absl::ResourceExhaustedError(
        "the system refuses memory for a step (ulimit -v, vm.overcommit_memory)");
  }
  return StepHandle{++launched_};
}

absl::StatusOr<StepResult> LlamaRunner::Run(const StepBatch& batch) {
  if (mover_ != nullptr) {
    if (absl::Status status = mover_->RunWaiting(); !status.ok()) return status;
  }
  model_.Forward(batch, batch.tokens, kv_, nullptr, abandoned_.get_token());
  if (abandoned_.stop_requested()) return absl::CancelledError("the engine has stopped");
  StepResult result;
  result.rows.resize(batch.logits.size());
  const std::vector<size_t> others = ChooseMostProbable(batch, &result);
  std::vector<LogitsRow> wanted;
  for (const size_t i : others) wanted.push_back(batch.logits[i]);
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  size_t first = 0;  // row of the piece
  for (const std::span<const LogitsRow> piece : logits_->Pieces(wanted)) {
    logits_->Compute(piece);
    const absl::StatusOr<std::span<float>> read = logits_->Read();
    if (!read.ok()) return read.status();
    // Rows have samplers of their own.
    backend_.ForEachOnHost(static_cast<int64_t>(piece.size()), [&](int64_t i) {
      result.rows[others[first + i]] =
          Choose(piece[i], read->subspan(static_cast<size_t>(i) * vocab, vocab));
    });
    first += piece.size();
  }
  if (absl::Status status = backend_.Synchronize(); !status.ok()) return status;
  try {
    for (size_t i = 0; i < result.rows.size(); ++i) {
      SamplerState* const sampler = batch.logits[i].sampler;
      if (sampler != nullptr) result.rows[i].output = sampler->Count(result.rows[i].token);
    }
  } catch (const std::bad_alloc&) {
    // Some have counted a token that nobody gets: they cannot choose again.
    return absl::InternalError("the system refuses memory for the tokens that a step chose");
  }
  return result;
}

std::vector<size_t> LlamaRunner::ChooseMostProbable(const StepBatch& batch, StepResult* result) {
  std::vector<size_t> others, asked;
  std::vector<int32_t> rows;
  std::vector<LlamaModel::BannedToken> banned;
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  for (size_t i = 0; i < batch.logits.size(); ++i) {
    const LogitsRow& wanted = batch.logits[i];
    const bool is_greedy = !WantsLogprobs(wanted) && wanted.sampler->greedy_but_bans();
    const std::vector<TokenId> bans =
        is_greedy ? wanted.sampler->Banned(vocab) : std::vector<TokenId>();
    if (is_greedy && bans.size() <= kMostBans) {
      const auto row = static_cast<int32_t>(rows.size());
      for (const TokenId token : bans) banned.push_back({row, static_cast<int32_t>(token)});
      asked.push_back(i);
      rows.push_back(wanted.row);
    } else {
      others.push_back(i);
    }
  }
  if (asked.empty()) return others;
  std::vector<int32_t> tokens(rows.size());
  model_.MostProbable(rows, banned, tokens);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (tokens[i] == LlamaModel::kUndecided) {
      others.push_back(asked[i]);
    } else {
      result->rows[asked[i]].token = TokenId{tokens[i]};
    }
  }
  return others;
}

SampledToken LlamaRunner::Choose(const LogitsRow& wanted, std::span<float> logits) const {
  if (wanted.sampler == nullptr) return Report(wanted, UnsampledToken(wanted, logits), logits);
  if (!WantsLogprobs(wanted)) return Report(wanted, wanted.sampler->Choose(logits), logits);
  // Log-probabilities are those of the model, before the sampler changes the logits.
  const std::vector<float> raw(logits.begin(), logits.end());
  return Report(wanted, wanted.sampler->Choose(logits), raw);
}

absl::StatusOr<StepResult> LlamaRunner::Collect(StepHandle handle) {
  assert(handle == StepHandle{launched_} && result_.has_value());
  absl::StatusOr<StepResult> result = *std::move(result_);
  result_.reset();
  return result;
}

}  // namespace refrain::engine
