#include "engine/text/reasoning_format.h"

#include <algorithm>

namespace refrain::engine {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kLineEnds = "\r\n";

bool BeginsWithThought(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpace)));
  return text.starts_with(kThinkOpen);
}

// What stands behind the opening tag, of a thought that is not closed.
ReasoningStart StartBehind(std::string_view words) {
  if (words.find_first_not_of(kSpace) == std::string_view::npos) {
    const bool ends_line = words.find_first_of(kLineEnds) != std::string_view::npos;
    return ends_line ? ReasoningStart::kInside : ReasoningStart::kBesideTag;
  }
  size_t close_bytes = kThinkClose.size() - 1;
  while (!words.ends_with(kThinkClose.substr(0, close_bytes))) --close_bytes;
  return ReasoningStart(ReasoningStart::kAmid, static_cast<uint8_t>(close_bytes));
}

}  // namespace

ReasoningFormat DetectReasoningFormat(std::string_view chat_template) {
  const bool closes_thoughts = chat_template.find(kThinkClose) != std::string_view::npos;
  return closes_thoughts ? ReasoningFormat::kThink : ReasoningFormat::kNone;
}

ReasoningStart ReasoningStartOf(std::string_view prompt, size_t template_begin) {
  std::string_view own = prompt.substr(std::min(prompt.size(), template_begin));
  const size_t open = own.rfind(kThinkOpen);
  if (open != std::string_view::npos && own.find(kThinkClose, open) == std::string_view::npos) {
    return StartBehind(own.substr(open + kThinkOpen.size()));
  }
  own = own.substr(0, own.find_last_not_of(kSpace) + 1);
  return own.ends_with(kThinkClose) ? ReasoningStart::kBehind : ReasoningStart::kBefore;
}

ReasoningStart ReasoningStartWithin(std::string_view answer, bool opened) {
  const bool opens = BeginsWithThought(answer);
  const bool closed = answer.find(kThinkClose) != std::string_view::npos;
  if (closed || !(opens || opened)) return ReasoningStart::kBehind;
  return StartBehind(opens ? answer.substr(answer.find(kThinkOpen) + kThinkOpen.size()) : answer);
}

std::string_view WithoutReasoning(std::string_view generated, ReasoningStart start) {
  const bool thinks =
      start.is_inside() || (start == ReasoningStart::kBefore && BeginsWithThought(generated));
  if (!thinks) return generated;
  const std::string_view rest_of_tag = kThinkClose.substr(start.close_bytes);
  if (generated.starts_with(rest_of_tag)) return generated.substr(rest_of_tag.size());
  const size_t close = generated.find(kThinkClose);
  if (close == std::string_view::npos) return {};
  return generated.substr(close + kThinkClose.size());
}

}  // namespace refrain::engine
