#include "engine/text/reasoning_format.h"

#include <algorithm>

namespace refrain::engine {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool BeginsWithThought(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpace)));
  return text.starts_with(kThinkOpen);
}

}  // namespace

ReasoningFormat DetectReasoningFormat(std::string_view chat_template) {
  const bool closes_thoughts = chat_template.find(kThinkClose) != std::string_view::npos;
  return closes_thoughts ? ReasoningFormat::kThink : ReasoningFormat::kNone;
}

ReasoningStart ReasoningStartOf(std::string_view prompt, size_t template_begin) {
  prompt = prompt.substr(0, prompt.find_last_not_of(kSpace) + 1);
  const std::string_view own = prompt.substr(std::min(prompt.size(), template_begin));
  if (own.ends_with(kThinkOpen)) return ReasoningStart::kInside;
  return own.ends_with(kThinkClose) ? ReasoningStart::kBehind : ReasoningStart::kBefore;
}

ReasoningStart ReasoningStartWithin(std::string_view answer) {
  const bool closed = answer.find(kThinkClose) != std::string_view::npos;
  return BeginsWithThought(answer) && !closed ? ReasoningStart::kInside : ReasoningStart::kBehind;
}

std::string_view WithoutReasoning(std::string_view generated, ReasoningStart start) {
  const bool thinks = start == ReasoningStart::kInside ||
                      (start == ReasoningStart::kBefore && BeginsWithThought(generated));
  if (!thinks) return generated;
  const size_t close = generated.find(kThinkClose);
  if (close == std::string_view::npos) return {};
  return generated.substr(close + kThinkClose.size());
}

}  // namespace refrain::engine
