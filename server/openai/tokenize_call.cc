#include "server/openai/tokenize_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/json.h"
#include "server/openai/chat_messages.h"
#include "server/openai/field_reader.h"
#include "server/openai/sampling_fields.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

absl::StatusOr<std::string> Render(const engine::ChatTemplate* chat_template,
                                   const engine::ChatTemplateInput& input,
                                   const engine::Tokenizer& tokenizer) {
  if (chat_template == nullptr) {
    return InvalidField("messages",
                        "'messages' cannot be rendered: the model has no chat template");
  }
  absl::StatusOr<engine::RenderedChat> rendered = chat_template->Render(input);
  if (!rendered.ok()) return rendered.status();
  const engine::EncodeOptions safe = SafeEncodeOptions(*rendered);
  engine::EncodeOptions plain = safe;
  plain.plain_spans = {};
  if (tokenizer.FindControlTokens(rendered->text, plain) !=
      tokenizer.FindControlTokens(rendered->text, safe)) {
    return InvalidField("messages",
                        "'messages' spell a control token, which /tokenize cannot count as text");
  }
  return std::move(rendered->text);
}

}  // namespace

absl::StatusOr<TokenizeCall> ParseTokenizeCall(std::string_view body, const ModelLimits& limits,
                                               const engine::ChatTemplate* chat_template,
                                               const engine::Tokenizer& tokenizer) {
  const absl::StatusOr<Json> document = ParseJson(body);
  if (!document.ok()) return document.status();
  if (!document->is_object()) {
    return absl::InvalidArgumentError("the request body must be a JSON object");
  }
  FieldReader fields(*document, "");
  ReadModel(fields, limits);
  auto prompt = fields.String("prompt");
  const bool is_chat = !prompt.has_value() && fields.AnyOrNull("messages") != nullptr;
  TokenizeCall call;
  // A rendered conversation has its special tokens already.
  call.text.add_special_tokens = fields.Bool("add_special_tokens").value_or(!is_chat);
  call.token_strings = fields.Bool("return_token_strs").value_or(false);
  engine::ChatTemplateInput input;
  input.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  if (fields.Bool("continue_final_message").value_or(false)) {
    fields.Refuse("continue_final_message", "is not supported here");
  }
  if (is_chat) {
    ReadChatMessages(fields, /*show_tools=*/true, limits.message_forms, &input);
    if (!input.tools.is_undefined() && limits.tools == engine::ToolFormat::kNone) {
      fields.Refuse("tools", kToolsProblem);
    }
  } else if (!prompt.has_value()) {
    fields.Refuse("prompt", "is required, or 'messages'");
  } else if (fields.AnyOrNull("messages") != nullptr) {
    fields.Refuse("messages", "excludes 'prompt'");
  }
  RefuseChatTemplate(fields);
  fields.ArrayOrNull("tools");
  fields.ObjectOrNull("chat_template_kwargs");
  const Json* const documents = fields.ArrayOrNull("documents");
  if (documents != nullptr && !std::all_of(documents->begin(), documents->end(),
                                           [](const Json& one) { return one.is_object(); })) {
    fields.Refuse("documents", "must hold objects alone");
  }
  if (!fields.status().ok()) return fields.status();
  if (!is_chat) {
    call.text.text = *std::move(prompt);
    return call;
  }
  absl::StatusOr<std::string> rendered = Render(chat_template, input, tokenizer);
  if (!rendered.ok()) return rendered.status();
  call.text.text = *std::move(rendered);
  return call;
}

}  // namespace refrain::server::openai
