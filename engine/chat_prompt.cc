#include "engine/chat_prompt.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace refrain::engine {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view WithoutSpaceBehind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// The last message's content, if it is text.
std::optional<std::string_view> FinalContent(const ChatPrompt& chat) {
  const jinja::Value& messages = chat.input.messages;
  if (!messages.is_list() || messages.AsList().empty()) return std::nullopt;
  const jinja::Value& last = messages.AsList().back();
  if (!last.is_map()) return std::nullopt;
  const jinja::Value* content = last.AsMap().FindOrNull("content");
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return content->AsString();
}

// Stands behind a text that says nothing, of which no template shows the place.
constexpr std::string_view kPlaceOfText = "<place of the text>";

void MarkPlaceOfText(std::string spaces, ChatPrompt* chat) {
  jinja::Value::List messages = chat->input.messages.AsList();
  jinja::Map last = messages.back().AsMap();
  last.Set("content", jinja::Value::String(spaces.append(kPlaceOfText)));
  messages.back() = jinja::Value::MakeMap(std::move(last));
  chat->input.messages = jinja::Value::MakeList(std::move(messages));
}

// Cuts behind the last text of a message, if `content`, of which the space behind is cut off, ends
// there.
bool CutBehindLastSpan(std::string_view content, RenderedChat* rendered) {
  if (rendered->content_spans.empty()) return false;
  const TextSpan& last = rendered->content_spans.back();
  // A template may trim the content, or show the end of it only.
  const std::string_view text = std::string_view(rendered->text).substr(0, last.end_byte);
  const std::string_view shown = WithoutSpaceBehind(text.substr(last.begin_byte));
  if (!WithoutSpaceBehind(text).ends_with(content) &&
      (shown.empty() || !content.ends_with(shown))) {
    return false;
  }
  rendered->text.resize(last.end_byte);
  return true;
}

// Ends the texts of messages there. False if what is behind is more than space.
bool EndSpans(size_t end, RenderedChat* rendered) {
  std::vector<TextSpan>& spans = rendered->content_spans;
  while (!spans.empty() && spans.back().end_byte > end) {
    TextSpan& last = spans.back();
    const size_t rest = std::max(last.begin_byte, end);
    const std::string_view text = std::string_view(rendered->text).substr(0, last.end_byte);
    if (!WithoutSpaceBehind(text.substr(rest)).empty()) return false;
    last.end_byte = rest;
    if (last.begin_byte == rest) spans.pop_back();
  }
  return true;
}

// Where `wanted`, which is not empty, begins last in the text, or npos. As rfind, in time in
// proportion to both (Knuth, Morris and Pratt, from the end): clients choose them.
size_t FindLast(std::string_view text, std::string_view wanted) {
  if (wanted.size() > text.size()) return std::string_view::npos;
  const size_t size = wanted.size();
  const auto from_end = [&](size_t i) { return wanted[size - 1 - i]; };
  // Of the last i + 1 characters: how many of the last ones they begin with, from the end.
  std::vector<uint32_t> repeats(size, 0);
  for (size_t i = 1, same = 0; i < size; ++i) {
    while (same > 0 && from_end(i) != from_end(same)) same = repeats[same - 1];
    if (from_end(i) == from_end(same)) ++same;
    repeats[i] = static_cast<uint32_t>(same);
  }
  for (size_t begin = text.size(), same = 0; begin-- > 0;) {
    while (same > 0 && text[begin] != from_end(same)) same = repeats[same - 1];
    if (text[begin] == from_end(same)) ++same;
    if (same == size) return begin;
  }
  return std::string_view::npos;
}

// For a template that takes the content apart and puts text of its own between (`<think>`): where
// the content stands last, as transformers looks for it, unless more text of messages follows.
bool CutBehindLastPlace(std::string_view content, RenderedChat* rendered) {
  std::string_view trimmed = WithoutSpaceBehind(content);
  const std::string_view space = content.substr(trimmed.size());
  trimmed.remove_prefix(trimmed.find_first_not_of(kSpace));
  const size_t begin = FindLast(rendered->text, trimmed);
  if (begin == std::string::npos) return false;
  size_t end = begin + trimmed.size();
  if (std::string_view(rendered->text).substr(end).starts_with(space)) end += space.size();
  if (!EndSpans(end, rendered)) return false;
  rendered->text.resize(end);
  return true;
}

absl::Status NoEndError() {
  return absl::InvalidArgumentError(
      "continue_final_message: the chat template does not end with the last message's text");
}

// What the template puts behind the last message's content would end the message.
absl::Status CutBehindFinalMessage(std::string_view content, RenderedChat* rendered) {
  const bool cut = CutBehindLastSpan(WithoutSpaceBehind(content), rendered) ||
                   CutBehindLastPlace(content, rendered);
  return cut ? absl::OkStatus() : NoEndError();
}

// The same where that stands for a text that says nothing.
absl::Status CutAtPlaceOfText(RenderedChat* rendered) {
  if (!CutBehindLastSpan(kPlaceOfText, rendered)) return NoEndError();
  if (!rendered->text.ends_with(kPlaceOfText)) {
    return absl::InvalidArgumentError(
        "continue_final_message: the chat template does not show where the last message's text is");
  }
  rendered->text.resize(rendered->text.size() - kPlaceOfText.size());
  TextSpan& last = rendered->content_spans.back();
  last.end_byte = rendered->text.size();
  if (last.begin_byte >= last.end_byte) rendered->content_spans.pop_back();
  return absl::OkStatus();
}

// By the template's own text up to `end`, behind so many of the messages' texts.
ReasoningStart StartBehindTemplate(const RenderedChat& rendered, size_t spans, size_t end) {
  return ReasoningStartOf(std::string_view(rendered.text).substr(0, end),
                          spans == 0 ? 0 : rendered.content_spans[spans - 1].end_byte);
}

ReasoningStart StartBehindTemplate(const RenderedChat& rendered) {
  return StartBehindTemplate(rendered, rendered.content_spans.size(), rendered.text.size());
}

// The template may have opened a thought in front of `words`.
ReasoningStart StartWithinMessage(std::string_view words, const RenderedChat& rendered) {
  const std::vector<TextSpan>& spans = rendered.content_spans;
  const bool opened =
      !spans.empty() &&
      StartBehindTemplate(rendered, spans.size() - 1, spans.back().begin_byte).is_inside();
  return ReasoningStartWithin(words, opened);
}

void SetStart(ReasoningStart start, const ChatTemplate& chat_template, RenderedChat* rendered) {
  rendered->by_tags = start;
  if (chat_template.reasoning_format() != ReasoningFormat::kNone) rendered->reasoning = start;
}

}  // namespace

absl::StatusOr<RenderedChat> RenderChatPrompt(const ChatTemplate& chat_template, ChatPrompt chat,
                                              EncodePace* pace) {
  if (!chat.continue_final_message) {
    absl::StatusOr<RenderedChat> rendered = chat_template.Render(chat.input, pace);
    if (rendered.ok()) SetStart(StartBehindTemplate(*rendered), chat_template, &*rendered);
    return rendered;
  }
  const std::optional<std::string_view> content = FinalContent(chat);
  if (!content.has_value()) {
    return absl::InvalidArgumentError(
        "continue_final_message: the last message has no text that could be continued");
  }
  const std::string continued(*content);
  const bool says_nothing = WithoutSpaceBehind(continued).empty();
  if (says_nothing) MarkPlaceOfText(continued, &chat);
  absl::StatusOr<RenderedChat> rendered = chat_template.Render(chat.input, pace);
  if (!rendered.ok()) return rendered.status();
  absl::Status status =
      says_nothing ? CutAtPlaceOfText(&*rendered) : CutBehindFinalMessage(continued, &*rendered);
  if (!status.ok()) return status;
  SetStart(says_nothing ? StartBehindTemplate(*rendered) : StartWithinMessage(continued, *rendered),
           chat_template, &*rendered);
  return rendered;
}

}  // namespace refrain::engine
