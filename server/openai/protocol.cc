#include "server/openai/protocol.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/concat.h"
#include "server/json.h"
#include "server/openai/answer_form.h"
#include "server/openai/chat_messages.h"
#include "server/openai/choice_fields.h"
#include "server/openai/field_reader.h"
#include "server/openai/responses_call.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/tool_choice.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

constexpr size_t kMaxChoicesPerCall = 2048;  // prompts times best_of

// --- /v1/completions ---

void ReadPrompts(FieldReader& fields, const ModelLimits& limits, const engine::Request& common,
                 std::vector<engine::Request>* requests) {
  if (fields.describes()) {
    const std::string ids = TokenIdsSchema(limits);
    fields.Describe(
        "prompt", Concat(R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":)",
                         R"({"type":"string"}},)", ids, R"(,{"type":"array","minItems":1,"items":)",
                         ids, "}]}"));
  }
  const Json* prompt = fields.AnyOrNull("prompt");
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  const auto add_text = [&](const Json& text) {
    engine::Request& request = requests->emplace_back(common);
    request.prompt = engine::TextPrompt{text.get<std::string>(), add_special_tokens};
  };
  const auto add_tokens = [&](const Json& ids) {
    engine::Request& request = requests->emplace_back(common);
    request.prompt = engine::TokenPrompt{ReadTokenIds(fields, "prompt", ids, limits)};
  };
  const auto refuse = [&] {
    fields.Refuse("prompt",
                  "must be a string, an array of strings, an array of token ids, or an array of "
                  "arrays of token ids; not empty and not mixed");
  };
  if (prompt == nullptr) return fields.Refuse("prompt", "is required");
  if (prompt->is_string()) return add_text(*prompt);
  if (!prompt->is_array() || prompt->empty()) return refuse();
  if (prompt->front().is_number()) return add_tokens(*prompt);
  if (prompt->size() * static_cast<size_t>(common.sequences()) > kMaxChoicesPerCall) {
    return fields.Refuse("prompt",
                         Concat("has ", prompt->size(), " prompts of ", common.sequences(),
                                " sequences each; at most ", kMaxChoicesPerCall,
                                " sequences are accepted per request"));
  }
  // The queue would refuse some of them whenever the call came again.
  if (prompt->size() > limits.max_prompts) {
    return fields.Refuse("prompt",
                         Concat("has ", prompt->size(), " prompts; at most ", limits.max_prompts,
                                " may wait (limits.queued_requests)"));
  }
  const bool texts = prompt->front().is_string();
  for (const Json& one : *prompt) {
    if (texts && one.is_string()) {
      add_text(one);
    } else if (!texts && one.is_array() && !one.empty()) {
      add_tokens(one);
    } else {
      return refuse();
    }
  }
}

void ReadCompletion(FieldReader& fields, const ModelLimits& limits, GenerationCall* call) {
  engine::Request common;
  const auto max_context = static_cast<double>(limits.max_context_tokens);
  common.stop.max_tokens = static_cast<int32_t>(
      fields.Integer("max_tokens", {0, max_context}).value_or(kDefaultCompletionTokens));
  ReadChoiceFields(fields, limits, &common);
  ReadSamplingFields(fields, limits, &common);
  ReadStopFields(fields, "max_tokens", limits, &common.stop);
  ReadStreamFields(fields, call);
  common.echo = fields.Bool("echo").value_or(false);
  if (const auto top = fields.Integer("logprobs", kTopLogprobsRange)) {
    common.logprobs.top = static_cast<int32_t>(*top);
    if (common.echo) common.logprobs.prompt_top = common.logprobs.top;
  }
  call->output.echo = common.echo;
  call->output.logprobs = common.logprobs.top;
  ReadOutputFields(fields, limits, call, &common);
  ReadCacheFields(fields, call, &common);
  SetForm(ReadAnswerForm(fields, call->endpoint), &common);
  fields.Describe("suffix", R"({"enum":[null,""]})");
  if (const auto suffix = fields.String("suffix"); suffix.has_value() && !suffix->empty()) {
    fields.Refuse("suffix", "is not supported");
  }
  fields.Describe("prompt_embeds", kEmptySchema);
  if (!IsEmpty(fields.AnyOrNull("prompt_embeds"))) {
    fields.Refuse("prompt_embeds", "is not supported; use 'prompt'");
  }
  RefuseContradictions(fields, limits, common, call->stream);
  ReadPrompts(fields, limits, common, &call->requests);
}

// --- /v1/chat/completions ---

// The names that tools had before. "none" is what a request without functions means anyway.
void RefuseFunctions(FieldReader& fields) {
  fields.Describe("functions", kEmptySchema);
  fields.Describe("function_call", R"({"enum":[null,"",[],{},"none"]})");
  for (const char* name : {"functions", "function_call"}) {
    const Json* value = fields.AnyOrNull(name);
    const bool chooses_none =
        value != nullptr && std::string_view(name) == "function_call" && *value == "none";
    if (IsEmpty(value) || chooses_none) continue;
    fields.Refuse(name, "is not supported; use 'tools' and 'tool_choice'");
  }
}

// There is no other answer than text.
void CheckModalities(FieldReader& fields) {
  fields.Describe("modalities", R"({"type":["array","null"],"items":{"const":"text"}})");
  const Json* const modalities = fields.ArrayOrNull("modalities");
  if (modalities == nullptr) return;
  for (const Json& one : *modalities) {
    if (one == "text") continue;
    return fields.Refuse("modalities",
                         Concat("asks for ", ShownValue(one), "; only \"text\" is supported"));
  }
}

void ReadMaxTokens(FieldReader& fields, const ModelLimits& limits, engine::StopParams* stop) {
  const auto max_context = static_cast<double>(limits.max_context_tokens);
  const auto old_name = fields.Integer("max_tokens", {0, max_context});
  const auto new_name = fields.Integer("max_completion_tokens", {0, max_context});
  // Without a limit a conversation ends with the model or with the context.
  stop->max_tokens =
      static_cast<int32_t>(new_name.value_or(old_name.value_or(limits.max_context_tokens)));
}

void ReadChat(FieldReader& fields, const ModelLimits& limits, GenerationCall* call) {
  engine::Request& request = call->requests.emplace_back();
  ReadMaxTokens(fields, limits, &request.stop);
  ReadChoiceFields(fields, limits, &request);
  ReadSamplingFields(fields, limits, &request);
  ReadStopFields(fields, "max_tokens", limits, &request.stop);
  ReadStreamFields(fields, call);
  const bool logprobs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", kTopLogprobsRange);
  if (logprobs) request.logprobs.top = static_cast<int32_t>(top.value_or(0));
  if (top.value_or(0) > 0 && !logprobs) {
    fields.Refuse("top_logprobs", "is only allowed when 'logprobs' is true");
  }
  call->output.logprobs = request.logprobs.top;
  ReadOutputFields(fields, limits, call, &request);
  ReadCacheFields(fields, call, &request);
  std::optional<engine::OutputFormat> form = ReadAnswerForm(fields, call->endpoint);
  RefuseChatTemplate(fields);
  RefuseFunctions(fields);
  call->output.reasoning = limits.reasoning;
  call->output.include_reasoning = fields.Bool("include_reasoning").value_or(true);
  CheckModalities(fields);
  fields.Ignore("verbosity");

  engine::ChatPrompt prompt = ReadChatOptions(fields);
  const CallChoice choice = ReadToolChoice(fields, call->endpoint);
  call->output.parallel_tool_calls = choice.several;
  call->conversation_bytes = ReadChatMessages(fields, choice.choice, limits, &prompt);
  AddCalls(choice, fields.ArrayOrNull("tools"), limits, fields, &form);
  SetForm(std::move(form), &request);
  RefuseContradictions(fields, limits, request, call->stream);
  if (fields.Bool("echo").value_or(false)) call->output.prefix = LastAssistantText(fields);
  call->conversation_bytes += call->output.prefix.size();
  if (prompt.may_call_tools) call->output.tools = limits.tools;
  request.prompt = std::move(prompt);
}

void ReadFields(FieldReader& fields, const ModelLimits& limits, GenerationCall* call) {
  switch (call->endpoint) {
    case Endpoint::kCompletions:
      return ReadCompletion(fields, limits, call);
    case Endpoint::kChatCompletions:
      return ReadChat(fields, limits, call);
    case Endpoint::kResponses:
      return ReadResponsesCall(fields, limits, call);
  }
}

}  // namespace

std::string_view InputField(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return "prompt";
    case Endpoint::kChatCompletions:
      return "messages";
    case Endpoint::kResponses:
      break;
  }
  return "input";
}

std::string RequestSchema(Endpoint endpoint, const ModelLimits& limits) {
  const Json nothing = Json::object();
  FieldReader::Schemas schemas;
  FieldReader fields(nothing, "", &schemas);
  ReadModel(fields, limits);
  GenerationCall call;
  call.endpoint = endpoint;
  ReadFields(fields, limits, &call);
  std::string text =
      Concat(R"({"type":"object","required":[")", InputField(endpoint), R"("],"properties":{)");
  for (size_t i = 0; i < schemas.size(); ++i) {
    if (i > 0) text += ",";
    AppendJsonString(schemas[i].first, &text);
    ConcatTo(&text, ":", schemas[i].second);
  }
  return text + "}}";
}

absl::StatusOr<GenerationCall> ParseGenerationCall(Endpoint endpoint, std::string_view body,
                                                   const ModelLimits& limits) {
  const absl::StatusOr<Json> document = ParseJson(body);
  if (!document.ok()) return document.status();
  return ReadGenerationCall(endpoint, *document, limits);
}

absl::StatusOr<GenerationCall> ReadGenerationCall(Endpoint endpoint, const Json& body,
                                                  const ModelLimits& limits) {
  if (absl::Status status = CheckIsObject(body); !status.ok()) return status;
  FieldReader fields(body, "");
  ReadModel(fields, limits);
  if (!fields.status().ok()) return fields.status();
  GenerationCall call;
  call.endpoint = endpoint;
  ReadFields(fields, limits, &call);
  if (!fields.status().ok()) return fields.status();
  call.ignored_fields = fields.UnknownNames();
  return call;
}

size_t ChoicesAskedFor(Endpoint endpoint, const Json& body) {
  if (!body.is_object()) return 0;
  size_t choices = 1;
  for (const char* name : {"n", "best_of"}) {
    const auto count = body.find(name);
    if (count == body.end() || !count->is_number()) continue;
    const double most = std::min(count->get<double>(), double{kMaxChoicesPerCall});
    choices = std::max(choices, static_cast<size_t>(std::max(most, 1.0)));
  }
  if (endpoint != Endpoint::kCompletions) return choices;
  const auto prompt = body.find("prompt");
  const bool many = prompt != body.end() && prompt->is_array() && !prompt->empty() &&
                    !prompt->front().is_number();
  return many ? choices * prompt->size() : choices;
}

}  // namespace refrain::server::openai
