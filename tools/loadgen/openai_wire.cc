#include "tools/loadgen/openai_wire.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostMessageBytes = 300;

void AppendPrompt(const GenerationRequest& request, std::string* body) {
  if (request.form == PromptForm::kTokenIds) {
    body->append("\"prompt\":[");
    for (size_t i = 0; i < request.token_ids.size(); ++i) {
      absl::StrAppend(body, i == 0 ? "" : ",", request.token_ids[i]);
    }
    body->append("]");
    return;
  }
  if (request.form == PromptForm::kText) {
    absl::StrAppend(body, "\"prompt\":", QuotedJson(request.text));
    return;
  }
  body->append("\"messages\":[");
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const ChatMessage& message = request.messages[i];
    absl::StrAppend(body, i == 0 ? "" : ",", "{\"role\":", QuotedJson(message.role),
                    ",\"content\":", QuotedJson(message.content), "}");
  }
  body->append("]");
}

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int32_t> Count(const Json* object, const char* name) {
  const Json* value = object == nullptr ? nullptr : Member(*object, name);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<int32_t>();
}

void AppendText(const Json& object, const char* name, std::string* text) {
  const Json* value = Member(object, name);
  if (value != nullptr && value->is_string()) text->append(value->get_ref<const std::string&>());
}

// Under the newer of its two names, or the older; some servers have both.
void AppendReasoning(const Json& delta, std::string* text) {
  const char* name = Member(delta, "reasoning") != nullptr ? "reasoning" : "reasoning_content";
  AppendText(delta, name, text);
}

// An event of a completion is a token's also where that shows nothing: a part of a character, or a
// control token. The first of a chat is its role's.
int32_t TokensOf(const Json& choice, const StreamEvent& event) {
  if (!event.token_ids.empty()) return static_cast<int32_t>(event.token_ids.size());
  if (!event.text.empty()) return 1;
  const Json* text = Member(choice, "text");
  const bool of_completion = text != nullptr && text->is_string();
  const bool has_ids = Member(choice, "token_ids") != nullptr;
  return of_completion && !has_ids && !event.finish_reason.has_value() ? 1 : 0;
}

void ReadChoice(const Json& choice, StreamEvent* event) {
  AppendText(choice, "text", &event->content);
  if (const Json* delta = Member(choice, "delta")) {
    AppendReasoning(*delta, &event->text);
    AppendText(*delta, "content", &event->content);
    if (const Json* calls = Member(*delta, "tool_calls"); calls != nullptr && calls->is_array()) {
      for (const Json& call : *calls) {
        if (const Json* function = Member(call, "function")) {
          AppendText(*function, "name", &event->text);
          AppendText(*function, "arguments", &event->text);
        }
      }
    }
  }
  event->text.append(event->content);
  if (const Json* ids = Member(choice, "token_ids"); ids != nullptr && ids->is_array()) {
    for (const Json& id : *ids) {
      if (id.is_number_integer()) event->token_ids.push_back(id.get<int32_t>());
    }
  }
  if (const Json* reason = Member(choice, "finish_reason")) {
    event->finish_reason = reason->is_string() ? reason->get<std::string>() : reason->dump();
  }
  event->tokens = TokensOf(choice, *event);
}

std::string Beginning(std::string_view text) {
  return std::string(text.substr(0, kMostMessageBytes));
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return Beginning(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Nothing for what is no error. {"error": {"message": ...}}, as OpenAI has it; {"object": "error",
// "message": ...} of older servers; {"detail": ...} of FastAPI; "message" alone.
std::optional<std::string> MessageOf(const Json& answer) {
  if (const Json* error = Member(answer, "error")) {
    const Json* message = Member(*error, "message");
    return message != nullptr && message->is_string() ? message->get<std::string>()
                                                      : Beginning(TextOf(*error));
  }
  if (Member(answer, "choices") != nullptr) return std::nullopt;
  for (const char* name : {"message", "detail"}) {
    if (const Json* message = Member(answer, name)) return TextOf(*message);
  }
  const Json* object = Member(answer, "object");
  if (object != nullptr && *object == "error") return TextOf(answer);
  return std::nullopt;
}

}  // namespace

std::string QuotedJson(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view CompletionPath(PromptForm form) {
  return form == PromptForm::kChat ? "/v1/chat/completions" : "/v1/completions";
}

std::string EncodeBody(const WireOptions& options, const GenerationRequest& request) {
  std::string body;
  body.reserve(512 + request.token_ids.size() * 6);
  absl::StrAppend(&body, "{\"model\":", QuotedJson(options.model), ",");
  AppendPrompt(request, &body);
  const auto add = [&](const char* name, const auto& value) {
    if (!options.extra_members.contains(name)) absl::StrAppend(&body, ",\"", name, "\":", value);
  };
  add("max_tokens", request.output_tokens);
  add("temperature", options.temperature);
  add("stream", "true");
  add("stream_options", "{\"include_usage\":true}");
  if (options.ignore_eos) add("ignore_eos", "true");
  if (request.wants_token_ids) add("return_token_ids", "true");
  for (const auto& [name, value] : options.extra_members) {
    absl::StrAppend(&body, ",", QuotedJson(name), ":", value);
  }
  body.append("}");
  return body;
}

absl::StatusOr<StreamEvent> DecodeEvent(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an event that is no JSON object: ", Beginning(json)));
  }
  StreamEvent event;
  event.error = MessageOf(object);
  if (event.error.has_value()) return event;
  if (const Json* choices = Member(object, "choices"); choices != nullptr && choices->is_array()) {
    for (const Json& choice : *choices) ReadChoice(choice, &event);
  }
  if (const Json* usage = Member(object, "usage")) {
    event.prompt_tokens = Count(usage, "prompt_tokens");
    event.output_tokens = Count(usage, "completion_tokens");
    event.cached_tokens = Count(Member(*usage, "prompt_tokens_details"), "cached_tokens");
  }
  return event;
}

bool IsAbort(std::string_view finish_reason) {
  return finish_reason == "abort" || finish_reason == "error";
}

std::string ErrorMessage(std::string_view body) {
  const Json object = Json::parse(body, nullptr, false);
  return MessageOf(object).value_or(Beginning(body));
}

absl::StatusOr<std::string> FirstModel(std::string_view body) {
  const Json object = Json::parse(body, nullptr, false);
  const Json* data = Member(object, "data");
  if (data != nullptr && data->is_array() && !data->empty()) {
    const Json* id = Member(data->front(), "id");
    if (id != nullptr && id->is_string()) return id->get<std::string>();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("/v1/models names no model: ", Beginning(body), "; give one by --model"));
}

}  // namespace refrain::loadgen
