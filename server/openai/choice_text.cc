#include "server/openai/choice_text.h"

#include <algorithm>
#include <utility>

namespace refrain::server::openai {

ChoiceText::ChoiceText(const engine::Tokenizer* tokenizer, bool wants_tokens)
    : detokenizer_(tokenizer), tokenizer_(tokenizer), wants_tokens_(wants_tokens) {}

void ChoiceText::Add(const engine::TokenEvent& event) {
  const bool joins_prompt = event.from_prompt && last_was_prompt_ && !ready_.empty();
  if (joins_prompt) {
    open_ = std::move(ready_.back());
    ready_.pop_back();
  }
  last_was_prompt_ = event.from_prompt;
  if (event.shown_bytes.has_value()) {
    const std::string_view bytes = tokenizer_->TokenBytes(event.token);
    open_.text += detokenizer_.AppendBytes(
        bytes.substr(0, static_cast<size_t>(std::max(0, *event.shown_bytes))));
  } else {
    open_.text += detokenizer_.Append(event.token);
  }
  if (wants_tokens_) {
    TokenDetails& details = open_.tokens.emplace_back();
    details.token = event.token;
    if (event.logprob.has_value()) details.logprob = event.logprob->logprob;
    details.top = event.top;
  }
  if (!open_.text.empty()) Emit();
}

void ChoiceText::End(const engine::ChoiceEnd& end) {
  const std::string rest = detokenizer_.Flush();
  const bool joins_last = !end.stop_token.has_value() && open_.tokens.empty() && !ready_.empty();
  if (joins_last) {
    ready_.back().text += rest;
    ready_.back().finish = end.reason;
    return;
  }
  open_.text += rest;
  open_.finish = end.reason;
  Emit();
}

void ChoiceText::Emit() {
  open_.first = first_ || open_.first;
  first_ = false;
  ready_.push_back(std::exchange(open_, {}));
}

}  // namespace refrain::server::openai
