#include "tools/loadgen/conversation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {

Conversation::Conversation(Session session, Requests requests, Backend* backend, Recorder* recorder,
                           Ended ended)
    : session_(std::move(session)),
      sets_most_tokens_(requests.sets_most_tokens),
      backend_(backend),
      recorder_(recorder),
      ended_(std::move(ended)) {
  request_.form = requests.form;
}

bool Conversation::Prepare() {
  if (!has_more_turns()) return false;
  if (next_turn_ > 0) {
    request_.token_ids.insert(request_.token_ids.end(), answer_ids_.begin(), answer_ids_.end());
    if (request_.form == PromptForm::kText) {
      // Nothing is put between: the server's cache goes on behind a prompt with its answer.
      request_.text.append(answer_text_);
    } else if (request_.form == PromptForm::kChat) {
      request_.messages.push_back({"assistant", std::move(answer_text_)});
    }
  }
  answer_text_.clear();
  answer_ids_.clear();
  ids_received_ = 0;
  Turn& turn = session_.turns[next_turn_++];
  request_.token_ids.insert(request_.token_ids.end(), turn.token_ids.begin(), turn.token_ids.end());
  if (request_.form == PromptForm::kText) {
    for (size_t i = 0; i < turn.messages.size(); ++i) {
      if (i > 0) request_.text.push_back('\n');
      request_.text.append(turn.messages[i].content);
    }
  } else {
    for (ChatMessage& message : turn.messages) request_.messages.push_back(std::move(message));
  }
  request_.output_tokens = turn.output_tokens;
  request_.wants_token_ids = request_.form == PromptForm::kTokenIds && has_more_turns();
  encoded_ = backend_->Encode(request_);
  return true;
}

double Conversation::think_s() const { return session_.turns[next_turn_ - 1].think_s; }

void Conversation::Send(double now_s) {
  record_ = {.planned_s = record_.planned_s, .sent_s = now_s};
  recorder_->Sent(record_.planned_s, now_s);
  backend_->Start(std::move(encoded_), this);
}

void Conversation::GiveUp(double now_s, Failure failure) {
  record_ = {.planned_s = record_.planned_s, .sent_s = now_s, .end_s = now_s};
  record_.failure = std::move(failure);
  recorder_->NeverSent(record_);
}

bool Conversation::lacks_answer_ids() const {
  return request_.wants_token_ids && !failed() && answer_ids_.empty();
}

void Conversation::OnTokens(double at_s, int32_t tokens, std::string_view content,
                            std::span<const int32_t> ids) {
  if (tokens > 0) CountTokens(at_s, tokens);
  ids_received_ += static_cast<int64_t>(ids.size());
  if (!has_more_turns()) return;
  answer_text_.append(content);
  answer_ids_.insert(answer_ids_.end(), ids.begin(), ids.end());
}

void Conversation::CountTokens(double at_s, int32_t tokens) {
  if (record_.output_tokens == 0) {
    record_.first_token_s = at_s;
    recorder_->FirstTokens(tokens);
  } else {
    recorder_->Gap(at_s - record_.last_token_s, tokens);
  }
  record_.last_token_s = at_s;
  record_.output_tokens += tokens;
}

void Conversation::OnEnd(double at_s, const AnswerEnd& end) {
  record_.end_s = at_s;
  // Tokens behind the last text are told of by `usage` and this time only.
  record_.last_token_s = std::max(record_.last_token_s, end.finished_s.value_or(0));
  record_.failure = end.failure;
  record_.resent = end.resent;
  retry_after_s_ = end.retry_after_s;
  record_.input_tokens =
      end.prompt_tokens.value_or(static_cast<int32_t>(request_.token_ids.size()));
  const bool all_have_ids = ids_received_ > 0 && ids_received_ == record_.output_tokens;
  if (end.output_tokens.has_value()) {
    if (!record_.failure.has_value()) record_.failure = FindUntruth(*end.output_tokens);
    record_.output_tokens = *end.output_tokens;
  }
  // Events are no measure: there are tokens without text.
  if (end.output_tokens.has_value() || all_have_ids) {
    record_.is_short = record_.output_tokens < request_.output_tokens;
  }
  record_.cached_tokens = end.cached_tokens;
  recorder_->Ended(record_);
  ended_(this);
}

std::optional<Failure> Conversation::FindUntruth(int32_t told_tokens) const {
  if (sets_most_tokens_ && told_tokens > request_.output_tokens) {
    return Failure{"bad_answer", absl::StrCat("usage says ", told_tokens, " output tokens, of ",
                                              request_.output_tokens, " asked for")};
  }
  if (told_tokens < ids_received_) {
    return Failure{"bad_answer", absl::StrCat("usage says ", told_tokens, " output tokens, and ",
                                              ids_received_, " token ids came")};
  }
  return std::nullopt;
}

}  // namespace refrain::loadgen
