#include "server/grpc/answer_writer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace

AnswerWriter::AnswerWriter(const engine::Tokenizer* tokenizer, int32_t num_choices, bool logprobs)
    : tokenizer_(tokenizer),
      logprobs_(logprobs),
      detokenizers_(static_cast<size_t>(num_choices), engine::Detokenizer(tokenizer)),
      delta_indexes_(static_cast<size_t>(num_choices), -1) {}

void AnswerWriter::Take(engine::StreamBatch batch) {
  batch_ = std::move(batch);
  next_ = 0;
}

void AnswerWriter::Fill(v1::GenerateResponse* message) {
  message->clear_choices();
  std::fill(delta_indexes_.begin(), delta_indexes_.end(), -1);
  const size_t most = logprobs_ ? kMaxMessageLogprobs : kMaxMessageTokens;
  const size_t end = std::min(batch_.tokens.size(), next_ + most);
  for (; next_ < end; ++next_) {
    const engine::TokenEvent& event = batch_.tokens[next_];
    AddToken(event, DeltaOf(event.choice, message));
  }
  if (next_ < batch_.tokens.size()) return;
  for (const engine::ChoiceEnd& one : batch_.ends) AddEnd(one, DeltaOf(one.choice, message));
  batch_.ends.clear();
}

v1::ChoiceDelta* AnswerWriter::DeltaOf(int32_t choice, v1::GenerateResponse* message) {
  int& index = delta_indexes_[static_cast<size_t>(choice)];
  if (index >= 0) return message->mutable_choices(index);
  index = message->choices_size();
  v1::ChoiceDelta* const delta = message->add_choices();
  delta->set_index(choice);
  return delta;
}

void AnswerWriter::AddToken(const engine::TokenEvent& event, v1::ChoiceDelta* delta) {
  engine::Detokenizer& detokenizer = detokenizers_[static_cast<size_t>(event.choice)];
  const std::string_view bytes = tokenizer_->TokenBytes(event.token);
  if (event.shown_bytes.has_value()) {
    delta->mutable_text()->append(detokenizer.AppendBytes(
        bytes.substr(0, static_cast<size_t>(std::max(0, *event.shown_bytes)))));
  } else {
    delta->mutable_text()->append(detokenizer.Append(event.token));
  }
  delta->add_token_ids(static_cast<int32_t>(event.token));
  if (event.from_prompt) delta->set_prompt_tokens(delta->prompt_tokens() + 1);
  if (!logprobs_) return;
  v1::TokenLogprob* const logprob = delta->add_logprobs();
  logprob->set_token_id(static_cast<int32_t>(event.token));
  logprob->set_token(bytes.data(), bytes.size());
  if (event.logprob.has_value()) {
    logprob->set_logprob(event.logprob->logprob);
    logprob->set_rank(event.logprob->rank);
  }
  for (const engine::TokenLogprob& best : event.top) {
    v1::TopLogprob* const top = logprob->add_top();
    const std::string_view token = tokenizer_->TokenBytes(best.token);
    top->set_token_id(static_cast<int32_t>(best.token));
    top->set_logprob(best.logprob);
    top->set_rank(best.rank);
    top->set_token(token.data(), token.size());
  }
}

void AnswerWriter::AddEnd(const engine::ChoiceEnd& end, v1::ChoiceDelta* delta) {
  delta->mutable_text()->append(detokenizers_[static_cast<size_t>(end.choice)].Flush());
  delta->set_finish_reason(FinishReasonOf(end.reason));
  if (end.matched_stop.has_value()) delta->set_matched_stop(*end.matched_stop);
  if (end.stop_token.has_value()) {
    delta->set_stop_token_id(static_cast<int32_t>(*end.stop_token));
  }
}

}  // namespace refrain::server::rpc
