#include "server/openai/tokenize_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/chat_prompt.h"
#include "server/json.h"
#include "server/openai/cache_hints.h"
#include "server/openai/chat_messages.h"
#include "server/openai/field_reader.h"
#include "server/openai/sampling_fields.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

// The text that the messages are for the model, in `text`.
absl::Status Render(const engine::ChatTemplate* chat_template, engine::ChatPrompt chat,
                    engine::TextPrompt* text) {
  if (chat_template == nullptr) {
    return InvalidField("messages",
                        "'messages' cannot be rendered: the model has no chat template");
  }
  absl::StatusOr<engine::RenderedChat> rendered =
      engine::RenderChatPrompt(*chat_template, std::move(chat));
  if (!rendered.ok()) return rendered.status();
  text->text = std::move(rendered->text);
  text->plain_spans = std::move(rendered->content_spans);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizeCall> ParseTokenizeCall(std::string_view body, const ModelLimits& limits,
                                               const engine::ChatTemplate* chat_template) {
  const absl::StatusOr<Json> document = ParseJson(body);
  if (!document.ok()) return document.status();
  if (absl::Status status = CheckIsObject(*document); !status.ok()) return status;
  FieldReader fields(*document, "");
  ReadModel(fields, limits);
  auto prompt = fields.String("prompt");
  const bool is_chat = !prompt.has_value() && fields.AnyOrNull("messages") != nullptr;
  TokenizeCall call;
  // A rendered conversation has its special tokens already.
  call.text.add_special_tokens = fields.Bool("add_special_tokens").value_or(!is_chat);
  call.token_strings = fields.Bool("return_token_strs").value_or(false);
  engine::ChatPrompt chat = ReadChatOptions(fields);
  if (is_chat) {
    ReadChatMessages(fields, ToolChoice::kAuto, limits, &chat);
    ReadCacheBreakpoints(fields, "messages");  // refused as in a chat, else of no effect
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
  absl::Status status = Render(chat_template, std::move(chat), &call.text);
  if (!status.ok()) return status;
  return call;
}

}  // namespace refrain::server::openai
