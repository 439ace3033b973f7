#include "server/openai/choice_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace refrain::server::openai {

namespace {

// Tokens that show nothing wait for those that do, but not in numbers that count as memory.
constexpr size_t kMostSilentTokens = 64;

TokenDetails DetailsOf(engine::TokenId token, const std::optional<engine::TokenLogprob>& logprob,
                       const std::vector<engine::TokenLogprob>& top) {
  TokenDetails details{.token = token, .logprob = {}, .top = top};
  if (logprob.has_value()) {
    details.logprob = logprob->logprob;
    details.rank = logprob->rank;
  }
  return details;
}

}  // namespace

TokenDetails DetailsOf(const engine::TokenEvent& event) {
  TokenDetails details = DetailsOf(event.token, event.logprob, event.top);
  details.from_prompt = event.from_prompt;
  details.added_bos = event.added_bos;
  return details;
}

ChoiceText::ChoiceText(const engine::Tokenizer* tokenizer, const Options& options)
    : shown_(tokenizer, options.shown),
      wants_tokens_(options.wants_tokens),
      shows_end_token_(options.shows_end_token),
      prefix_(options.prefix) {}

void ChoiceText::Add(const engine::TokenEvent& event) {
  const bool joins_prompt = event.from_prompt && last_was_prompt_ && !ready_.empty();
  if (joins_prompt) {
    open_ = std::move(ready_.back());
    ready_.pop_back();
  }
  last_was_prompt_ = event.from_prompt;
  Take(shown_.Add(event));
  if (wants_tokens_) open_.tokens.push_back(DetailsOf(event));
  const bool says_something =
      !open_.text.empty() || !open_.reasoning.empty() || open_.call.has_value();
  // What is asked for of hidden tokens does not wait for the end of the thought.
  const bool waits = open_.tokens.size() < kMostSilentTokens && !shown_.hides_thought();
  if (says_something || (wants_tokens_ && !waits)) Emit();
}

void ChoiceText::Take(ShownText::Output output) {
  open_.reasoning += output.reasoning;
  const std::string_view text = output.text;
  size_t begin = 0;
  for (size_t i = 0; i < output.calls.size(); ++i) {
    if (open_.call.has_value()) Emit();
    open_.text += text.substr(begin, output.calls_at[i] - begin);
    open_.call = std::move(output.calls[i]);
    begin = output.calls_at[i];
  }
  if (begin == text.size()) return;
  if (open_.call.has_value()) Emit();
  open_.text += text.substr(begin);
}

void ChoiceText::End(const engine::ChoiceEnd& end) {
  const bool shows_end = shows_end_token_ && end.stop_token.has_value();
  shown_.CountTokens(end.hidden_tokens.size());
  if (shows_end) Take(shown_.AddEnd(*end.stop_token));
  Take(shown_.End());
  // Of a piece the call is the last.
  const bool fits_last = !ready_.empty() && (open_.text.empty() || !ready_.back().call.has_value());
  const bool joins_last =
      !end.stop_token.has_value() && open_.tokens.empty() && !open_.call.has_value() && fits_last;
  if (joins_last) {
    ready_.back().reasoning += open_.reasoning;
    ready_.back().text += open_.text;
    ready_.back().finish = end.reason;
    ready_.back().called = shown_.called();
    ready_.back().thinks = shown_.thinks();
    ready_.back().stop_string = end.matched_stop;
    ready_.back().hidden_tokens = end.hidden_tokens;
    return;
  }
  open_.finish = end.reason;
  open_.called = shown_.called();
  open_.thinks = shown_.thinks();
  if (end.stop_token.has_value()) {
    open_.end_token = DetailsOf(*end.stop_token, end.stop_logprob, end.stop_top);
    open_.end_token->shown = shows_end && !shown_.Hides(*end.stop_token);
  }
  open_.stop_string = end.matched_stop;
  open_.hidden_tokens = end.hidden_tokens;
  Emit();
}

void ChoiceText::Emit() {
  if (first_ && !prefix_.empty()) {
    ShownText::Output prefix = shown_.ShowPrefix(prefix_);
    if (!prefix.reasoning.empty() || !prefix.text.empty()) {
      ready_.push_back({.reasoning = std::move(prefix.reasoning),
                        .text = std::move(prefix.text),
                        .first = std::exchange(first_, false)});
    }
  }
  // A thought's are the first of all; those that a stop string hides are counted, but not listed.
  const int64_t left = shown_.reasoning_tokens() - listed_tokens_;
  const auto count = static_cast<int64_t>(open_.tokens.size());
  open_.thought_tokens = static_cast<size_t>(std::clamp(left, int64_t{0}, count));
  listed_tokens_ += count;
  open_.first = first_ || open_.first;
  first_ = false;
  ready_.push_back(std::exchange(open_, {}));
}

}  // namespace refrain::server::openai
