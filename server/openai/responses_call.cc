#include "server/openai/responses_call.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/openai/answer_form.h"
#include "server/openai/chat_messages.h"
#include "server/openai/choice_fields.h"
#include "server/openai/responses_input.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/tool_choice.h"

namespace refrain::server::openai {
namespace {

constexpr size_t kMaxMetadata = 16;  // OpenAI's
constexpr size_t kMaxMetadataNameCharacters = 64;
constexpr size_t kMaxMetadataCharacters = 512;

// What names something that was stored, or would be.
void RefuseStored(FieldReader& fields) {
  const auto refuse = [&](const char* name, std::string_view problem) {
    fields.Describe(name, kEmptySchema);
    if (!IsEmpty(fields.AnyOrNull(name))) fields.Refuse(name, problem);
  };
  refuse("previous_response_id",
         "is not supported: no response is stored; send the whole conversation in 'input'");
  refuse("conversation", "is not supported: no conversation is stored; send all of it in 'input'");
  refuse("prompt",
         "is not supported: no prompt template is stored; send 'instructions' and "
         "'input'");
  fields.Describe("background", R"({"enum":[false,null]})");
  if (fields.Bool("background").value_or(false)) {
    fields.Refuse("background",
                  "must be false: no response is stored that could be asked for "
                  "later");
  }
}

// The fields of chats that ask for several answers.
void ReadOneChoice(FieldReader& fields) {
  for (const char* const name : {"n", "best_of"}) {
    fields.Describe(name, R"({"enum":[1,null]})");
    const Json* const count = fields.AnyOrNull(name);
    if (count == nullptr || (count->is_number() && *count == 1)) continue;
    fields.Refuse(name, Concat("must be 1, not ", ShownValue(*count), ": there is one answer"));
  }
  fields.Describe("use_beam_search", R"({"enum":[false,null]})");
  if (fields.Bool("use_beam_search").value_or(false)) {
    fields.Refuse("use_beam_search", "must be false: it is for completions and chats");
  }
}

// Beside ReadSamplingFields, which has refused other values than strings.
void CheckMetadata(FieldReader& fields) {
  const Json* const metadata = fields.ObjectOrNull("metadata");
  if (metadata == nullptr || !fields.status().ok()) return;
  if (metadata->size() > kMaxMetadata) {
    return fields.Refuse("metadata", Concat("has ", metadata->size(), " pairs; at most ",
                                            kMaxMetadata, " are accepted"));
  }
  for (const auto& [name, value] : metadata->items()) {
    if (engine::CountUtf8Characters(name) > kMaxMetadataNameCharacters ||
        engine::CountUtf8Characters(value.get_ref<const std::string&>()) > kMaxMetadataCharacters) {
      return fields.Refuse("metadata",
                           Concat("must have keys of at most ", kMaxMetadataNameCharacters,
                                  " characters and values of at most ", kMaxMetadataCharacters));
    }
  }
}

void ReadLogprobs(FieldReader& fields, GenerationCall* call) {
  fields.Describe("include", R"({"type":["array","null"],"items":{"type":"string"}})");
  bool included = false;
  if (const Json* const include = fields.ArrayOrNull("include")) {
    for (const Json& one : *include) {
      if (!one.is_string()) {
        fields.Refuse("include", Concat("must be an array of strings, not of ", JsonTypeName(one)));
        break;
      }
      // The others are about tools that are not there, or about what would be stored.
      included = included || one == "message.output_text.logprobs";
    }
  }
  const auto top = fields.Integer("top_logprobs", kTopLogprobsRange);
  if (!included) return;
  call->requests.front().logprobs.top = static_cast<int32_t>(top.value_or(0));
  call->output.logprobs = call->requests.front().logprobs.top;
}

// What is shown beside the text in other answers and has no place in this one.
void RefuseOutputFields(FieldReader& fields, const OutputOptions& output) {
  if (output.prompt_logprobs.has_value()) {
    fields.Refuse("prompt_logprobs", "is not available in responses");
  }
  if (output.token_ids) fields.Refuse("return_token_ids", "is not available in responses");
}

void ReadTruncation(FieldReader& fields, const ModelLimits& limits, engine::Request* request) {
  fields.Describe("truncation", R"({"enum":["auto","disabled",null]})");
  const auto truncation = fields.String("truncation", 64);
  if (!truncation.has_value() || truncation == "disabled") return;
  if (truncation != "auto") {
    fields.Refuse("truncation",
                  Concat("must be \"auto\" or \"disabled\", not ", ShownValue(Json(*truncation))));
  } else if (!request->keep_prompt_tokens.has_value()) {
    request->keep_prompt_tokens = KeptPromptTokens(-1, request->stop, limits);
  }
}

// Writes the members of the answer that repeat the request.
class Echo {
 public:
  explicit Echo(FieldReader& fields) : fields_(fields) {}

  void Add(std::string_view name, std::string_view json) {
    ConcatTo(&text_, text_.empty() ? "" : ",", "\"", name, "\":", json);
  }
  // As it was sent, if it is one.
  void AddString(const char* name) {
    const Json* const value = fields_.AnyOrNull(name);
    Add(name, value != nullptr && value->is_string() ? Text(*value) : "null");
  }
  void AddOr(const char* name, std::string_view otherwise) {
    const Json* const value = fields_.AnyOrNull(name);
    Add(name, value != nullptr ? Text(*value) : otherwise);
  }
  // In ASCII: of Unicode's line ends, too, none may stand in an event.
  static std::string Text(const Json& value) { return value.dump(-1, ' ', true); }
  static std::string Text(double value) {
    std::string text;
    AppendJsonNumber(value, &text);
    return text;
  }
  std::string Take() { return std::move(text_); }

 private:
  FieldReader& fields_;
  std::string text_;
};

std::string EchoOf(FieldReader& fields, const engine::Request& request, const Json* reasoning) {
  Echo echo(fields);
  for (const char* const name : {"instructions", "user", "safety_identifier", "prompt_cache_key",
                                 "prompt_cache_retention"}) {
    echo.AddString(name);
  }
  for (const char* const name : {"max_output_tokens", "max_tool_calls"}) echo.AddOr(name, "null");
  echo.AddOr("metadata", "{}");
  echo.AddOr("parallel_tool_calls", "true");
  echo.AddOr("tool_choice", "\"auto\"");
  echo.AddOr("tools", "[]");
  echo.AddOr("truncation", "\"disabled\"");
  echo.AddOr("top_logprobs", "0");
  echo.Add("temperature", Echo::Text(request.sampling.temperature));
  echo.AddOr("top_p", Echo::Text(request.sampling.top_p));
  Json shown_text = {{"format", {{"type", "text"}}}};
  const Json* const text = fields.ObjectOrNull("text");
  for (const char* const name : {"format", "verbosity"}) {
    if (text == nullptr || !text->contains(name) || text->at(name).is_null()) continue;
    shown_text[name] = text->at(name);
  }
  echo.Add("text", Echo::Text(shown_text));
  Json shown_reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  for (const char* const name : {"effort", "summary"}) {
    if (reasoning != nullptr && reasoning->contains(name) && reasoning->at(name).is_string()) {
      shown_reasoning[name] = reasoning->at(name);
    }
  }
  echo.Add("reasoning", Echo::Text(shown_reasoning));
  return echo.Take();
}

}  // namespace

void ReadResponsesCall(FieldReader& fields, const ModelLimits& limits, GenerationCall* call) {
  engine::Request& request = call->requests.emplace_back();
  // What the other endpoints take more of.
  fields.Describe("metadata", R"({"type":["object","null"],"maxProperties":16,"propertyNames":)"
                              R"({"maxLength":64},"additionalProperties":)"
                              R"({"type":"string","maxLength":512}})");
  fields.Describe("prompt_logprobs", R"({"type":"null"})");
  fields.Describe("return_token_ids", R"({"enum":[false,null]})");

  const auto max_context = static_cast<double>(limits.max_context_tokens);
  request.stop.max_tokens = static_cast<int32_t>(
      fields.Integer("max_output_tokens", {0, max_context}).value_or(limits.max_context_tokens));
  request.timeout_s = fields.Number("timeout", kTimeoutRange);
  ReadOneChoice(fields);
  ReadSamplingFields(fields, limits, &request);
  CheckMetadata(fields);
  ReadStopFields(fields, "max_output_tokens", limits, &request.stop);
  ReadStreamFields(fields, call);
  ReadLogprobs(fields, call);
  ReadOutputFields(fields, limits, call, &request);
  RefuseOutputFields(fields, call->output);
  ReadTruncation(fields, limits, &request);
  ReadCacheFields(fields, call, &request);
  RefuseStored(fields);
  RefuseChatTemplate(fields);
  std::optional<engine::OutputFormat> form = ReadAnswerForm(fields, call->endpoint);
  call->output.reasoning = limits.reasoning;
  call->output.include_reasoning = fields.Bool("include_reasoning").value_or(true);
  fields.Integer("max_tool_calls", {0, INT32_MAX});  // of tools that are not there

  engine::ChatPrompt prompt = ReadChatOptions(fields);
  const CallChoice choice = ReadToolChoice(fields, call->endpoint);
  call->output.parallel_tool_calls = choice.several;
  const Json tools = ReadResponsesTools(fields);
  const ResponsesInput input = ReadResponsesInput(fields);
  Conversation conversation = {.field = "input",
                               .messages = &input.messages,
                               .items = &input.items,
                               .calls = &input.calls,
                               .tools = &tools};
  const Json* const reasoning = fields.ObjectOrNull("reasoning");
  if (reasoning != nullptr && reasoning->contains("effort")) {
    conversation.effort = &reasoning->at("effort");
  }
  ReadTemplateFields(fields, &conversation);
  if (!fields.status().ok()) return;
  call->conversation_bytes = ReadConversation(conversation, fields, choice.choice, limits, &prompt);
  AddCalls(choice, &tools, limits, fields, &form);
  SetForm(std::move(form), &request);
  RefuseContradictions(fields, limits, request, call->stream);
  if (prompt.may_call_tools) call->output.tools = limits.tools;
  request.prompt = std::move(prompt);
  call->echo = EchoOf(fields, request, reasoning);
}

}  // namespace refrain::server::openai
