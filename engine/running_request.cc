#include "engine/running_request.h"

#include <cassert>
#include <utility>

namespace refrain::engine {
namespace {

// One well-mixed seed per choice (the finaliser of splitmix64).
uint64_t ChoiceSeed(uint64_t seed, int32_t choice) {
  uint64_t x = seed + static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

int32_t SequenceState::known_tokens() const {
  return request->prompt_tokens() + static_cast<int32_t>(generated.size());
}

TokenId SequenceState::token(int32_t index) const {
  const int32_t prompt_tokens = request->prompt_tokens();
  return index < prompt_tokens ? request->prompt()[static_cast<size_t>(index)]
                               : generated[static_cast<size_t>(index - prompt_tokens)];
}

void SequenceState::SkipReplayed() {
  replay_next = std::min(request->FirstWantedPromptRow(), replay_end);
}

int32_t SequenceState::RunnableTokens(int32_t appended_tokens) const {
  if (replaying()) return replay_end - replay_next;
  if (request->max_tokens() == 0) return request->prompt_tokens() - appended_tokens;
  // A beam's next token is not the device's to choose.
  if (request->beams() != nullptr) return known_tokens() - appended_tokens;
  const int32_t chosen = static_cast<int32_t>(generated.size()) + pending_samples;
  if (chosen >= request->max_tokens()) return 0;
  return existing_tokens() - appended_tokens;
}

bool SequenceState::SamplesAt(int32_t index) const {
  return index + 1 == existing_tokens() && request->max_tokens() > 0;
}

RunningRequest::RunningRequest(std::unique_ptr<EncodedRequest> encoded, SequenceId first_id,
                               PromptKeys prompt_keys)
    : encoded_(std::move(encoded)), prompt_keys_(std::move(prompt_keys)) {
  const auto sequences = static_cast<uint64_t>(request().sequences());
  if (request().beam.has_value()) {
    beams_.emplace(request(), encoded_->stop_rules);
    live_choices_ = 1;
    // So that its beams are as old as itself, however late they are made.
    reserved_ids_ = sequences * (static_cast<uint64_t>(max_tokens()) + 1);
  } else {
    if (request().picks_best()) best_of_.emplace(request());
    live_choices_ = request().sequences();
    reserved_ids_ = sequences;
  }
  next_id_ = static_cast<uint64_t>(first_id) + 1;
  choices_.push_back(
      std::make_shared<SequenceState>(first_id, this, /*choice=*/0, encoded_->stop_rules));
  outbox_.usage.prompt_tokens = prompt_tokens();
}

void RunningRequest::MakeChoices() {
  assert(!beams_.has_value());
  for (int32_t choice = static_cast<int32_t>(choices_.size()); choice < request().sequences();
       ++choice) {
    choices_.push_back(std::make_shared<SequenceState>(SequenceId{next_id_++}, this, choice,
                                                       encoded_->stop_rules));
  }
}

void RunningRequest::Start() {
  if (std::exchange(started_, true)) return;
  encoded_->ticket.LeaveQueue();
  const bool with_logprobs = request().logprobs.prompt_top.has_value();
  if (!request().echo && !request().tell_prompt && !with_logprobs) return;
  if (request().tell_prompt) outbox_.text_ids.assign(prompt().begin(), prompt().end());
  const size_t shown_now = with_logprobs ? 1 : prompt().size();
  for (size_t i = 0; i < shown_now; ++i) {
    const bool added_bos = i == 0 && encoded_->added_bos;
    PushPromptEvent({.token = prompt()[i], .from_prompt = true, .added_bos = added_bos});
  }
}

bool RunningRequest::SetCachedTokens(int32_t found, int32_t written) {
  if (std::exchange(cached_tokens_set_, true)) return false;
  outbox_.usage.cached_tokens = found;
  outbox_.usage.written_tokens = written;
  // Should they be evicted before it runs again, they count no more than if they were not.
  if (!request().logprobs.prompt_top.has_value()) prompt_computed_end_ = found;
  return true;
}

void RunningRequest::MakeSampler(SequenceState* choice, uint64_t fresh_seed) {
  if (choice->sampler.has_value() || beams_.has_value()) return;
  const SamplingParams& params = request().sampling;
  const uint64_t seed = ChoiceSeed(params.seed.value_or(fresh_seed), choice->choice);
  for (const auto& sibling : choices_) {
    if (!sibling->sampler.has_value()) continue;
    choice->sampler.emplace(*sibling->sampler, seed);
    return;
  }
  choice->sampler.emplace(params, seed, prompt(), encoded_->stop_rules->min_tokens,
                          encoded_->stop_rules->late_tokens, encoded_->constraint);
}

bool RunningRequest::WantsPromptRow(int32_t index) const {
  return request().logprobs.prompt_top.has_value() && index >= next_prompt_row_ &&
         index + 1 < prompt_tokens();
}

void RunningRequest::AddPromptToken(int32_t index, const SampledToken& sampled) {
  PushPromptEvent({.token = prompt()[static_cast<size_t>(index)],
                   .from_prompt = true,
                   .logprob = sampled.logprob,
                   .top = sampled.top});
}

void RunningRequest::CountPrompt(int32_t begin, int32_t end) {
  end = std::min(end, prompt_tokens());
  if (end <= prompt_computed_end_) return;
  outbox_.usage.computed_tokens += end - std::max(begin, prompt_computed_end_);
  prompt_computed_end_ = end;
}

// With echo the prompt is part of every choice's output, else it is told once.
void RunningRequest::PushPromptEvent(TokenEvent event) {
  const int32_t copies = request().echo ? request().n : 1;
  for (int32_t choice = 0; choice < copies; ++choice) {
    event.choice = choice;
    outbox_.tokens.push_back(event);
  }
}

std::optional<ChoiceEnd> RunningRequest::AddToken(SequenceState* choice, SampledToken sampled,
                                                  std::string_view shown_bytes) {
  choice->generated.push_back(sampled.token);
  ++outbox_.usage.completion_tokens;
  CountGenerated(1);
  const bool complete = sampled.output == OutputState::kComplete;
  if (best_of_.has_value()) best_of_->Count(choice->choice, sampled.logprob->logprob);
  std::optional<ChoiceEnd> end = choice->stop.Accept({.choice = choice->choice,
                                                      .token = sampled.token,
                                                      .logprob = sampled.logprob,
                                                      .top = std::move(sampled.top)},
                                                     shown_bytes, OutputOf(*choice));
  // No step for an end token that alone could come. What came last may have been the longest
  // answer, too.
  if (complete && (!end.has_value() || end->reason == FinishReason::kLength)) {
    end = ChoiceEnd{.choice = choice->choice};
  }
  return end;
}

void RunningRequest::End(SequenceState* choice, ChoiceEnd end) {
  choice->stop.ReleaseAll(OutputOf(*choice));
  choice->phase = SequencePhase::kEnded;
  end.choice = choice->choice;
  if (!best_of_.has_value()) {
    outbox_.ends.push_back(std::move(end));
  } else if (best_of_->End(choice->choice, std::move(end))) {
    best_of_->Output(&outbox_.tokens, &outbox_.ends);
  }
  if (--live_choices_ == 0) outbox_.finished = true;
}

std::shared_ptr<SequenceState> RunningRequest::MakeBeam(const SequenceState& parent) {
  auto beam = std::make_shared<SequenceState>(SequenceId{next_id_++}, this, parent.choice,
                                              encoded_->stop_rules);
  beam->generated = parent.generated;
  beam->kept_generated = parent.kept_generated;
  beam->waits_since_step = parent.waits_since_step;
  beam->match = parent.match;  // where to look on from, should it wait
  return beam;
}

void RunningRequest::SetBeams(std::vector<std::shared_ptr<SequenceState>> beams) {
  choices_ = std::move(beams);
  for (size_t i = 0; i < choices_.size(); ++i) choices_[i]->choice = static_cast<int32_t>(i);
}

void RunningRequest::EndBeams() {
  for (const auto& beam : choices_) beam->phase = SequencePhase::kEnded;
  outbox_.usage.completion_tokens += beams_->Output(request().n, &outbox_.tokens, &outbox_.ends);
  outbox_.finished = true;
}

void RunningRequest::Finish(absl::Status status) {
  const FinishReason reason =
      absl::IsCancelled(status) ? FinishReason::kCancelled : FinishReason::kError;
  if (beams_.has_value()) {
    for (const auto& beam : choices_) beam->phase = SequencePhase::kEnded;
    for (int32_t i = 0; i < request().n; ++i)
      outbox_.ends.push_back({.choice = i, .reason = reason});
  } else {
    MakeChoices();
    for (const auto& choice : choices_) {
      if (choice->phase != SequencePhase::kEnded) End(choice.get(), {.reason = reason});
    }
  }
  outbox_.finished = true;
  outbox_.status = std::move(status);
}

StreamBatch RunningRequest::TakeOutput(Clock::TimePoint sampled) {
  StreamBatch batch;
  batch.usage = outbox_.usage;
  std::swap(batch, outbox_);
  outbox_.usage = batch.usage;
  outbox_.finished = batch.finished;
  if (batch.has_output()) batch.first_sampled = sampled;
  timing_.Sent(batch);
  if (batch.finished) encoded_->ticket.LeaveQueue();
  return batch;
}

}  // namespace refrain::engine
