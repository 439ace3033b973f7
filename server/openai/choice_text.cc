#include "server/openai/choice_text.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace refrain::server::openai {

TokenDetails DetailsOf(const engine::TokenEvent& event) {
  TokenDetails details{.token = event.token, .logprob = {}, .top = event.top};
  if (event.logprob.has_value()) {
    details.logprob = event.logprob->logprob;
    details.rank = event.logprob->rank;
  }
  details.from_prompt = event.from_prompt;
  return details;
}

ChoiceText::ChoiceText(const engine::Tokenizer* tokenizer, Options options)
    : detokenizer_(tokenizer, {.skip_special = options.skip_special}),
      tokenizer_(tokenizer),
      options_(options) {
  using engine::ToolFormat;
  if (options.tools == ToolFormat::kHermes || options.tools == ToolFormat::kLlama3) {
    parser_.emplace(options.tools, options.parallel_tool_calls ? SIZE_MAX : 1);
  }
}

void ChoiceText::Add(const engine::TokenEvent& event) {
  const bool joins_prompt = event.from_prompt && last_was_prompt_ && !ready_.empty();
  if (joins_prompt) {
    open_ = std::move(ready_.back());
    ready_.pop_back();
  }
  last_was_prompt_ = event.from_prompt;
  if (event.shown_bytes.has_value()) {
    const std::string_view bytes = tokenizer_->TokenBytes(event.token);
    Show(detokenizer_.AppendBytes(
        bytes.substr(0, static_cast<size_t>(std::max(0, *event.shown_bytes)))));
  } else if (parser_.has_value() && tokenizer_->IsControl(event.token) &&
             ToolCallParser::IsMarker(tokenizer_->TokenBytes(event.token))) {
    Show(detokenizer_.Flush() + std::string(tokenizer_->TokenBytes(event.token)));
  } else {
    Show(detokenizer_.Append(event.token));
  }
  if (options_.wants_tokens) open_.tokens.push_back(DetailsOf(event));
  if (!open_.text.empty() || !open_.calls.empty()) Emit();
}

void ChoiceText::Show(std::string text) {
  if (parser_.has_value()) return Take(parser_->Add(text));
  open_.text += text;
}

void ChoiceText::Take(ToolCallParser::Output parsed) {
  open_.text += parsed.text;
  open_.calls.insert(open_.calls.end(), parsed.calls.begin(), parsed.calls.end());
}

void ChoiceText::End(const engine::ChoiceEnd& end) {
  Show(detokenizer_.Flush());
  if (parser_.has_value()) Take(parser_->Finish());
  const bool joins_last =
      !end.stop_token.has_value() && open_.tokens.empty() && open_.calls.empty() && !ready_.empty();
  if (joins_last) {
    ready_.back().text += open_.text;
    ready_.back().finish = end.reason;
    return;
  }
  open_.finish = end.reason;
  open_.end_token = end.stop_token;
  Emit();
}

void ChoiceText::Emit() {
  open_.first = first_ || open_.first;
  first_ = false;
  ready_.push_back(std::exchange(open_, {}));
}

}  // namespace refrain::server::openai
