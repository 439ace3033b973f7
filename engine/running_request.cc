#include "engine/running_request.h"

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

int32_t SequenceState::RunnableTokens(int32_t appended_tokens) const {
  if (replaying()) return replay_end - replay_next;
  if (request->max_tokens() == 0) return request->prompt_tokens() - appended_tokens;
  const int32_t chosen = static_cast<int32_t>(generated.size()) + pending_samples;
  if (chosen >= request->max_tokens()) return 0;
  return existing_tokens() - appended_tokens;
}

bool SequenceState::SamplesAt(int32_t index) const {
  return index + 1 == existing_tokens() && request->max_tokens() > 0;
}

RunningRequest::RunningRequest(std::unique_ptr<EncodedRequest> encoded, SequenceId first_id,
                               PrefixKeys prefix_keys)
    : encoded_(std::move(encoded)),
      live_choices_(encoded_->request.n),
      prefix_keys_(std::move(prefix_keys)) {
  for (int32_t choice = 0; choice < live_choices_; ++choice) {
    const SequenceId id{static_cast<uint64_t>(first_id) + static_cast<uint64_t>(choice)};
    choices_.push_back(std::make_shared<SequenceState>(id, this, choice, encoded_->stop_rules));
  }
  outbox_.usage.prompt_tokens = prompt_tokens();
}

void RunningRequest::Start() {
  if (std::exchange(started_, true)) return;
  encoded_->ticket.Started();
  const bool with_logprobs = request().logprobs.prompt_top.has_value();
  if (!request().echo && !with_logprobs) return;
  const size_t shown_now = with_logprobs ? 1 : prompt().size();
  for (size_t i = 0; i < shown_now; ++i) {
    PushPromptEvent({.token = prompt()[i], .from_prompt = true});
  }
}

bool RunningRequest::SetCachedTokens(int32_t tokens) {
  if (std::exchange(cached_tokens_set_, true)) return false;
  outbox_.usage.cached_tokens = tokens;
  return true;
}

void RunningRequest::MakeSampler(SequenceState* choice, uint64_t fresh_seed) {
  if (choice->sampler.has_value()) return;
  const SamplingParams& params = request().sampling;
  choice->sampler.emplace(params, ChoiceSeed(params.seed.value_or(fresh_seed), choice->choice),
                          prompt(), encoded_->stop_rules->min_tokens,
                          encoded_->stop_rules->end_tokens);
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

// With echo the prompt is part of every choice's output, else it is told once.
void RunningRequest::PushPromptEvent(TokenEvent event) {
  const int32_t copies = request().echo ? request().n : 1;
  for (int32_t choice = 0; choice < copies; ++choice) {
    event.choice = choice;
    outbox_.tokens.push_back(event);
  }
}

std::optional<ChoiceEnd> RunningRequest::AddToken(SequenceState* choice, SampledToken sampled,
                                                  std::string_view bytes) {
  choice->generated.push_back(sampled.token);
  ++outbox_.usage.completion_tokens;
  return choice->stop.Accept({.choice = choice->choice,
                              .token = sampled.token,
                              .logprob = sampled.logprob,
                              .top = std::move(sampled.top)},
                             bytes, &outbox_.tokens);
}

void RunningRequest::End(SequenceState* choice, ChoiceEnd end) {
  choice->stop.ReleaseAll(&outbox_.tokens);
  choice->phase = SequencePhase::kEnded;
  end.choice = choice->choice;
  outbox_.ends.push_back(std::move(end));
  if (--live_choices_ == 0) outbox_.finished = true;
}

void RunningRequest::Finish(absl::Status status) {
  const FinishReason reason =
      absl::IsCancelled(status) ? FinishReason::kCancelled : FinishReason::kError;
  for (const auto& choice : choices_) {
    if (choice->phase != SequencePhase::kEnded) End(choice.get(), {.reason = reason});
  }
  outbox_.finished = true;
  outbox_.status = std::move(status);
}

void RunningRequest::Flush() {
  StreamBatch batch;
  batch.usage = outbox_.usage;
  std::swap(batch, outbox_);
  outbox_.usage = batch.usage;
  outbox_.finished = batch.finished;
  encoded_->stream->Push(std::move(batch));
}

}  // namespace refrain::engine
