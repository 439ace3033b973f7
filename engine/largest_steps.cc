#include "engine/largest_steps.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace refrain::engine {
namespace {

// Gives slots rows behind keys of their own, in chunks from the pool's end: what is kept for each
// token of the pool then goes as far as it can.
class StepMaker {
 public:
  explicit StepMaker(const StepLimits& limits)
      : limits_(limits), next_chunk_(limits.num_chunks - 1) {
    batch_.slots.resize(static_cast<size_t>(limits.max_sequences));
  }

  int32_t rows() const { return rows_; }
  int32_t free_tokens() const { return (next_chunk_ + 1) * limits_.chunk_tokens; }

  void Add(int32_t rows, int32_t keys) {
    const int32_t window = limits_.window_tokens;
    const int32_t key_begin = window > 0 ? std::max(0, keys - rows - window + 1) : 0;
    batch_.slots[static_cast<size_t>(slot_)] = {rows, rows_, key_begin, keys};
    const auto chunk_begin = static_cast<int32_t>(plan_->chunks.size());
    for (int32_t token = 0; token < keys; token += limits_.chunk_tokens) {
      plan_->chunks.push_back({next_chunk_--, token});
    }
    plan_->runs.push_back(
        {chunk_begin, static_cast<int32_t>(plan_->chunks.size()), slot_, slot_ + 1});
    plan_->slots.push_back({slot_, 0, kernels::kOpenEnd});
    rows_ += rows;
    ++slot_;
  }

  StepBatch Finish(int32_t rows) && {
    batch_.tokens.resize(static_cast<size_t>(rows));
    batch_.plan = std::move(plan_);
    return std::move(batch_);
  }

 private:
  const StepLimits& limits_;
  int32_t next_chunk_;
  int32_t slot_ = 0;
  int32_t rows_ = 0;
  StepBatch batch_;
  std::shared_ptr<AttentionPlanArrays> plan_ = std::make_shared<AttentionPlanArrays>();
};

}  // namespace

std::vector<StepBatch> LargestSteps(const StepLimits& limits) {
  StepMaker prompts(limits), next_tokens(limits), one_token(limits);
  for (int32_t i = 0; i < limits.max_sequences; ++i) {
    const int32_t rows = std::min(
        {limits.max_rows - prompts.rows(), limits.max_context_tokens, prompts.free_tokens()});
    if (rows > 0) prompts.Add(rows, rows);
  }
  const int32_t sequences = std::min({limits.max_sequences, limits.max_rows, limits.num_chunks});
  const int32_t keys =
      std::min(limits.max_context_tokens, limits.num_chunks / sequences * limits.chunk_tokens);
  for (int32_t i = 0; i < sequences; ++i) next_tokens.Add(1, keys);
  one_token.Add(1, std::min(limits.max_context_tokens, one_token.free_tokens()));

  std::vector<StepBatch> steps;
  steps.push_back(std::move(prompts).Finish(limits.max_rows));
  steps.push_back(std::move(next_tokens).Finish(sequences));
  steps.push_back(std::move(one_token).Finish(1));
  return steps;
}

}  // namespace refrain::engine
