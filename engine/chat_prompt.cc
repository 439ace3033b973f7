#include "engine/chat_prompt.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace refrain::engine {
namespace {

std::string_view WithoutSpaceBehind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
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

// What the template puts behind the last message's content would end the message.
absl::Status CutBehindFinalMessage(std::string_view content, RenderedChat* rendered) {
  if (!rendered->content_spans.empty()) {
    const TextSpan& last = rendered->content_spans.back();
    // A template may trim the content, or show the end of it only.
    const std::string_view text = std::string_view(rendered->text).substr(0, last.end_byte);
    const std::string_view shown = WithoutSpaceBehind(text.substr(last.begin_byte));
    if (WithoutSpaceBehind(text).ends_with(content) ||
        (!shown.empty() && content.ends_with(shown))) {
      rendered->text.resize(last.end_byte);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      "continue_final_message: the chat template does not end with the last message's text");
}

// The same where that stands for a text that says nothing.
absl::Status CutAtPlaceOfText(RenderedChat* rendered) {
  absl::Status status = CutBehindFinalMessage(kPlaceOfText, rendered);
  if (!status.ok()) return status;
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

}  // namespace

absl::StatusOr<RenderedChat> RenderChatPrompt(const ChatTemplate& chat_template, ChatPrompt chat) {
  if (!chat.continue_final_message) return chat_template.Render(chat.input);
  const std::optional<std::string_view> content = FinalContent(chat);
  if (!content.has_value()) {
    return absl::InvalidArgumentError(
        "continue_final_message: the last message has no text that could be continued");
  }
  const std::string continued(WithoutSpaceBehind(*content));
  if (continued.empty()) MarkPlaceOfText(std::string(*content), &chat);
  absl::StatusOr<RenderedChat> rendered = chat_template.Render(chat.input);
  if (!rendered.ok()) return rendered.status();
  absl::Status status = continued.empty() ? CutAtPlaceOfText(&*rendered)
                                          : CutBehindFinalMessage(continued, &*rendered);
  if (!status.ok()) return status;
  return rendered;
}

}  // namespace refrain::engine
