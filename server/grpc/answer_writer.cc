#include "server/grpc/answer_writer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/concat.h"
#include "server/request_id.h"

namespace refrain::server::rpc {
namespace {

v1::FinishReason FinishReasonOf(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case engine::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case engine::FinishReason::kCancelled:
    case engine::FinishReason::kError:
      break;  // the call's status tells
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::CacheMissReason ReasonOf(engine::CacheMissReason reason) {
  switch (reason) {
    case engine::CacheMissReason::kNeverSeen:
      return v1::CACHE_MISS_REASON_NEVER_SEEN;
    case engine::CacheMissReason::kDiverged:
      return v1::CACHE_MISS_REASON_DIVERGED;
    case engine::CacheMissReason::kEvicted:
      return v1::CACHE_MISS_REASON_EVICTED;
    case engine::CacheMissReason::kTruncated:
      return v1::CACHE_MISS_REASON_TRUNCATED;
    case engine::CacheMissReason::kDisabled:
      break;
  }
  return v1::CACHE_MISS_REASON_DISABLED;
}

}  // namespace

AnswerWriter::AnswerWriter(const engine::Tokenizer* tokenizer, const AnswerOptions& options,
                           std::shared_ptr<Disposal> disposal)
    : tokenizer_(tokenizer),
      options_(options),
      disposal_(std::move(disposal)),
      texts_(static_cast<size_t>(options.num_choices), openai::ShownText(tokenizer, options.shown)),
      delta_indexes_(static_cast<size_t>(options.num_choices), -1) {}

void AnswerWriter::DropBatch() {
  if (disposal_ != nullptr) disposal_->TakeTokens(std::move(batch_.tokens));
}

void AnswerWriter::Take(engine::StreamBatch batch) {
  DropBatch();
  batch_ = std::move(batch);
  next_ = 0;
  if (started_ || drained()) return;
  started_ = true;
  for (openai::ShownText& text : texts_) text.SetReasoningStart(batch_.reasoning);
}

bool AnswerWriter::Fill(v1::GenerateResponse* message) {
  message->clear_choices();
  message->clear_prompt_token_ids();
  message->clear_prompt_logprobs();
  std::fill(delta_indexes_.begin(), delta_indexes_.end(), -1);
  const bool logprobs = options_.logprobs || options_.prompt_logprobs;
  const size_t most = logprobs ? kMaxMessageLogprobs : kMaxMessageTokens;
  const size_t end = std::min(batch_.tokens.size(), next_ + most);
  for (; next_ < end; ++next_) {
    const engine::TokenEvent& event = batch_.tokens[next_];
    if (event.from_prompt && event.choice == 0) AddPromptToken(event, message);
    if (!event.from_prompt || options_.echo) AddToken(event, DeltaOf(event.choice, message));
  }
  if (next_ == batch_.tokens.size()) {
    for (const engine::ChoiceEnd& one : batch_.ends) AddEnd(one, DeltaOf(one.choice, message));
    batch_.ends.clear();
  }
  return message->choices_size() > 0 || message->prompt_token_ids_size() > 0 ||
         message->prompt_logprobs_size() > 0;
}

void AnswerWriter::FillUsage(const engine::Usage& usage, v1::Usage* out) const {
  out->set_prompt_tokens(usage.prompt_tokens);
  out->set_cached_tokens(usage.cached_tokens);
  out->set_cache_write_tokens(usage.written_tokens);
  out->set_completion_tokens(usage.completion_tokens);
  if (options_.shown.reasoning != engine::ReasoningFormat::kNone) {
    int32_t tokens = 0;
    for (const openai::ShownText& text : texts_) tokens += text.reasoning_tokens();
    out->set_reasoning_tokens(tokens);
  }
  if (!options_.cache_report || !usage.miss.has_value()) return;
  v1::CacheMiss* const miss = out->mutable_cache_miss();
  miss->set_reason(ReasonOf(usage.miss->reason));
  miss->set_at_token(usage.miss->at_token);
  miss->set_evicted_tokens(usage.miss->evicted_tokens);
}

v1::ChoiceDelta* AnswerWriter::DeltaOf(int32_t choice, v1::GenerateResponse* message) {
  int& index = delta_indexes_[static_cast<size_t>(choice)];
  if (index >= 0) return message->mutable_choices(index);
  index = message->choices_size();
  v1::ChoiceDelta* const delta = message->add_choices();
  delta->set_index(choice);
  return delta;
}

void AnswerWriter::AddPromptToken(const engine::TokenEvent& event,
                                  v1::GenerateResponse* message) const {
  if (options_.prompt_token_ids) {
    message->add_prompt_token_ids(static_cast<int32_t>(event.token));
  }
  if (options_.prompt_logprobs) *message->add_prompt_logprobs() = LogprobOf(event);
}

void AnswerWriter::AddToken(const engine::TokenEvent& event, v1::ChoiceDelta* delta) {
  AddShown(texts_[static_cast<size_t>(event.choice)].Add(event), delta);
  delta->add_token_ids(static_cast<int32_t>(event.token));
  if (event.from_prompt) delta->set_prompt_tokens(delta->prompt_tokens() + 1);
  if (options_.logprobs) *delta->add_logprobs() = LogprobOf(event);
}

void AnswerWriter::AddShown(const openai::ShownText::Output& output, v1::ChoiceDelta* delta) const {
  if (!output.reasoning.empty()) delta->mutable_reasoning()->append(output.reasoning);
  delta->mutable_text()->append(output.text);
  for (const openai::ToolCallDelta& call : output.calls) {
    const int last = delta->tool_calls_size() - 1;
    if (!call.name.has_value() && last >= 0 && delta->tool_calls(last).index() == call.index) {
      delta->mutable_tool_calls(last)->mutable_arguments()->append(call.arguments);
      continue;
    }
    v1::ToolCallDelta* const out = delta->add_tool_calls();
    out->set_index(call.index);
    out->set_arguments(call.arguments);
    if (!call.name.has_value()) continue;
    // Not made of the request's id: a client may send the same one with each turn of a
    // conversation, and the turns' calls must differ.
    out->set_id(Concat("call_", MakeRequestId()));
    out->set_name(*call.name);
  }
}

v1::TokenLogprob AnswerWriter::LogprobOf(const engine::TokenEvent& event) const {
  const std::string_view bytes = tokenizer_->TokenBytes(event.token);
  v1::TokenLogprob logprob;
  logprob.set_token_id(static_cast<int32_t>(event.token));
  logprob.set_token(bytes.data(), bytes.size());
  if (event.logprob.has_value()) {
    logprob.set_logprob(event.logprob->logprob);
    logprob.set_rank(event.logprob->rank);
  }
  for (const engine::TokenLogprob& best : event.top) {
    v1::TopLogprob* const top = logprob.add_top();
    const std::string_view token = tokenizer_->TokenBytes(best.token);
    top->set_token_id(static_cast<int32_t>(best.token));
    top->set_logprob(best.logprob);
    top->set_rank(best.rank);
    top->set_token(token.data(), token.size());
  }
  return logprob;
}

void AnswerWriter::AddEnd(const engine::ChoiceEnd& end, v1::ChoiceDelta* delta) {
  openai::ShownText& text = texts_[static_cast<size_t>(end.choice)];
  text.CountTokens(end.hidden_tokens.size());
  if (options_.shows_end_token && end.stop_token.has_value()) {
    AddShown(text.AddEnd(*end.stop_token), delta);
  }
  AddShown(text.End(), delta);
  for (const engine::TokenId token : end.hidden_tokens) {
    delta->add_token_ids(static_cast<int32_t>(token));
  }
  const v1::FinishReason reason = FinishReasonOf(end.reason);
  const bool called = reason == v1::FINISH_REASON_STOP && text.called();
  delta->set_finish_reason(called ? v1::FINISH_REASON_TOOL_CALLS : reason);
  if (end.matched_stop.has_value()) delta->set_matched_stop(*end.matched_stop);
  if (end.stop_token.has_value()) {
    delta->set_stop_token_id(static_cast<int32_t>(*end.stop_token));
    if (options_.logprobs) {
      *delta->mutable_stop_logprob() =
          LogprobOf({.token = *end.stop_token, .logprob = end.stop_logprob, .top = end.stop_top});
    }
  }
}

}  // namespace refrain::server::rpc
