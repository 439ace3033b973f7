#include "engine/thinking_budget.h"

#include <algorithm>
#include <string_view>

namespace refrain::engine {
namespace {

using kvcache::TokenId;

constexpr std::string_view kSpace = " \t\r\n";

// The token that has the greatest part of the text; the last of those, as the tokens of single
// bytes that stand beside a vocabulary of characters come first. Tokenizers spell this text so,
// too, but some with a space in front.
std::optional<TokenId> LongestPrefix(const Tokenizer& tokenizer, std::string_view text) {
  std::optional<TokenId> best;
  size_t best_bytes = 1;
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const TokenId token{static_cast<int32_t>(id)};
    const std::string_view bytes = tokenizer.TokenBytes(token);
    if (bytes.size() < best_bytes || !text.starts_with(bytes)) continue;
    if (tokenizer.IsControl(token)) continue;
    best = token;
    best_bytes = bytes.size();
  }
  return best;
}

}  // namespace

ThoughtCloser::ThoughtCloser(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {
  if (const std::optional<TokenId> tag = tokenizer->FindSpecial(kThinkClose)) {
    next_.fill(tag);
    return;
  }
  for (size_t begun = 0; begun < next_.size(); ++begun) {
    next_[begun] = LongestPrefix(*tokenizer, kThinkClose.substr(begun));
  }
}

bool ThoughtCloser::can_close() const {
  return std::ranges::all_of(next_, [](const auto& token) { return token.has_value(); });
}

std::optional<TokenId> ThoughtCounter::Due() const {
  if (place_ != Place::kInside || thought_tokens_ < limit_->budget_tokens) return std::nullopt;
  return limit_->closer->Next(tag_bytes_);
}

void ThoughtCounter::Count(TokenId token) {
  if (place_ == Place::kBehind) return;
  if (place_ == Place::kInside) ++thought_tokens_;
  const Tokenizer& tokenizer = limit_->closer->tokenizer();
  const std::string_view bytes = tokenizer.TokenBytes(token);
  const bool is_tag = bytes == kThinkOpen || bytes == kThinkClose;
  if (!is_tag && tokenizer.IsControl(token)) return;  // no text
  for (const char byte : bytes) Take(byte);
}

// Neither tag begins with what it has inside: a mismatch leaves one byte of it at most.
void ThoughtCounter::Take(char byte) {
  if (place_ == Place::kBehind) return;
  const std::string_view tag = place_ == Place::kBefore ? kThinkOpen : kThinkClose;
  if (byte == tag[tag_bytes_]) {
    if (++tag_bytes_ < tag.size()) return;
    place_ = place_ == Place::kBefore ? Place::kInside : Place::kBehind;
    tag_bytes_ = 0;
  } else if (place_ == Place::kInside) {
    tag_bytes_ = byte == tag.front() ? 1 : 0;
  } else if (tag_bytes_ > 0 || kSpace.find(byte) == std::string_view::npos) {
    place_ = Place::kBehind;  // the output begins with an answer
  }
}

}  // namespace refrain::engine
