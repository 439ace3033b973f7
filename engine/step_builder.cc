#include "engine/step_builder.h"

#include <algorithm>

#include "engine/attention_plan_arrays.h"

namespace refrain::engine {

void StepBuilder::Begin() {
  step_ = {};
  batch_.tokens.clear();
  batch_.positions.clear();
  batch_.destinations.clear();
  batch_.logits.clear();
  batch_.logits_slots.clear();
  batch_.slots.assign(static_cast<size_t>(cache_->options().max_slots), {});
  places_.clear();
}

void StepBuilder::Add(const std::shared_ptr<SequenceState>& sequence, int32_t num_tokens) {
  const bool replayed = sequence->replaying();
  const int32_t first = sequence->NextToken(cache_->appended_tokens(sequence->id));
  const int32_t row_begin = rows();
  const int32_t key_end = first + num_tokens;
  const int32_t existing = sequence->existing_tokens();
  new_positions_.clear();
  for (int32_t index = first; index < key_end; ++index) {
    const bool known = index < sequence->known_tokens();
    batch_.tokens.push_back(known ? static_cast<int32_t>(sequence->token(index))
                                  : StepBatch::kFromPreviousStep);
    new_positions_.push_back(index);
    AddLogits(sequence, index, row_begin + index - first);
  }
  batch_.positions.insert(batch_.positions.end(), new_positions_.begin(), new_positions_.end());
  AddPlaces(*sequence, replayed);
  if (replayed) sequence->replay_next += num_tokens;
  // Oldest key that the first of the rows sees.
  const int32_t key_begin = window_tokens_ > 0 ? std::max(0, first - window_tokens_ + 1) : 0;
  batch_.slots[ToIndex(cache_->slot(sequence->id))] = {num_tokens, row_begin, key_begin, key_end};
  step_.work.push_back({sequence, first, num_tokens, replayed});
  if (key_end == existing && sequence->request->max_tokens() > 0) ++sequence->pending_samples;
}

// The K and V of replayed tokens are there already, in chunks that may be shared.
void StepBuilder::AddPlaces(const SequenceState& sequence, bool replayed) {
  if (replayed) {
    places_.insert(places_.end(), new_positions_.size(), {kvcache::ChunkId{-1}, 0});
  } else {
    cache_->Append(sequence.id, new_positions_, &places_);
  }
}

void StepBuilder::AddLogits(const std::shared_ptr<SequenceState>& sequence, int32_t index,
                            int32_t row) {
  RunningRequest& request = *sequence->request;
  LogitsRow wanted{.row = row};
  std::optional<int32_t> prompt_index;
  if (sequence->SamplesAt(index)) {
    if (const BeamGroup* beams = request.beams(); beams != nullptr) {
      wanted.top_logprobs = beams->top_logprobs();
    } else {
      wanted.sampler = &*sequence->sampler;
      wanted.top_logprobs = request.sample_logprobs();
    }
  } else if (request.WantsPromptRow(index)) {
    request.TakePromptRow(index);
    prompt_index = index + 1;
    wanted.prompt_next = sequence->token(index + 1);
    wanted.top_logprobs = request.request().logprobs.prompt_top;
  } else {
    return;
  }
  batch_.logits.push_back(wanted);
  batch_.logits_slots.push_back(static_cast<int32_t>(cache_->slot(sequence->id)));
  step_.logits.push_back({sequence, prompt_index});
}

const StepBatch& StepBuilder::Finish() {
  batch_.destinations.reserve(places_.size());
  for (const kvcache::TokenPlace& place : places_) {
    batch_.destinations.push_back({static_cast<int32_t>(place.chunk), place.offset});
  }
  const std::shared_ptr<const kvcache::AttentionPlan> plan = cache_->Plan();
  if (batch_.plan == nullptr || batch_.plan->generation != plan->generation) {
    batch_.plan = ToArrays(*plan);
  }
  return batch_;
}

}  // namespace refrain::engine
