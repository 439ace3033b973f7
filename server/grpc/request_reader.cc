#include "server/grpc/request_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/openai/chat_messages.h"
#include "server/openai/field_reader.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

// The first field that is wrong.
class Complaint {
 public:
  explicit Complaint(const ModelLimits& limits) : limits_(limits) {}

  void Refuse(std::string_view field, std::string_view problem) {
    Fail(InvalidField(field, Concat("'", field, "' ", problem)));
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void RequireRange(std::string_view field, double value, const Range& range) {
    if (range.Contains(value)) return;
    Refuse(field, Concat("must be ", range.Text(), ", not ", value));
  }
  void RequireAtMost(std::string_view field, int count, size_t limit, std::string_view what) {
    if (static_cast<size_t>(count) <= limit) return;
    Refuse(field, Concat("has ", count, " ", what, "; at most ", limit, " are accepted"));
  }
  engine::TokenId Token(std::string_view field, int32_t id) {
    if (id < 0 || id >= limits_.vocab_size) {
      Refuse(field, Concat("holds ", id, "; token ids go from 0 to ", limits_.vocab_size - 1));
    }
    return engine::TokenId{id};
  }
  template <typename Ids>
  std::vector<engine::TokenId> Tokens(std::string_view field, const Ids& ids) {
    std::vector<engine::TokenId> tokens;
    tokens.reserve(static_cast<size_t>(ids.size()));
    for (const int32_t id : ids) tokens.push_back(Token(field, id));
    return tokens;
  }
  const ModelLimits& limits() const { return limits_; }
  const absl::Status& status() const { return status_; }

 private:
  const ModelLimits& limits_;
  absl::Status status_;
};

// --- prompts ---

// JSON that a field holds; absent when the field is empty.
void AddJson(const std::string& text, const char* field, Json* object, const char* name,
             Complaint& complaint) {
  if (text.empty()) return;
  absl::StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) {
    complaint.Refuse(field, Concat("is not JSON: ", parsed.status().message()));
    return;
  }
  (*object)[name] = *std::move(parsed);
}

Json MessageJson(const v1::ChatMessage& in, Complaint& complaint) {
  Json message = Json::object();
  message["role"] = in.role();
  message["content"] = in.content();
  if (in.has_name()) message["name"] = in.name();
  if (in.has_tool_call_id()) message["tool_call_id"] = in.tool_call_id();
  AddJson(in.tool_calls_json(), "tool_calls_json", &message, "tool_calls", complaint);
  return message;
}

// Conversations are checked where those of HTTP are, so that a template sees the same.
engine::ChatPrompt ReadChatPrompt(const v1::ChatPrompt& in, Complaint& complaint) {
  Json body = Json::object();
  Json& messages = body["messages"] = Json::array();
  for (const v1::ChatMessage& message : in.messages()) {
    messages.push_back(MessageJson(message, complaint));
  }
  AddJson(in.tools_json(), "tools_json", &body, "tools", complaint);
  AddJson(in.chat_template_kwargs_json(), "chat_template_kwargs_json", &body,
          "chat_template_kwargs", complaint);
  engine::ChatPrompt prompt;
  prompt.continue_final_message = in.continue_final_message();
  prompt.input.add_generation_prompt =
      in.has_add_generation_prompt() ? in.add_generation_prompt() : !in.continue_final_message();
  if (prompt.continue_final_message && prompt.input.add_generation_prompt) {
    complaint.Refuse("continue_final_message", "excludes add_generation_prompt");
  }
  openai::FieldReader fields(body, "");
  openai::ReadChatMessages(fields, true, &prompt.input);
  complaint.Fail(fields.status());
  return prompt;
}

engine::TextPrompt ReadTextPrompt(const v1::TextPrompt& in) {
  return {in.text(), in.has_add_special_tokens() ? in.add_special_tokens() : true};
}

// Of a message with the members text, tokens and chat.
template <typename Message>
void ReadPrompt(const Message& in, engine::Request* request, Complaint& complaint) {
  switch (in.prompt_case()) {
    case Message::kText:
      request->prompt = ReadTextPrompt(in.text());
      break;
    case Message::kTokens:
      request->prompt = engine::TokenPrompt{complaint.Tokens("tokens.ids", in.tokens().ids())};
      break;
    case Message::kChat:
      request->prompt = ReadChatPrompt(in.chat(), complaint);
      break;
    case Message::PROMPT_NOT_SET:
      complaint.Refuse("prompt", "is required: text, tokens or chat");
      break;
  }
}

void ReadSalt(const std::string& salt, std::string_view field, engine::Request* request,
              Complaint& complaint) {
  constexpr size_t kMax = engine::Request::kMaxCacheSaltCharacters;
  const size_t characters = engine::CountUtf8Characters(salt);
  if (characters == 0 || characters > kMax) {
    complaint.Refuse(field, Concat("must have 1 to ", kMax, " characters, not ", characters));
  }
  request->cache_salt = salt;
}

// --- parameters ---

void ReadSampling(const v1::Sampling& in, engine::SamplingParams* out, Complaint& complaint) {
  const auto number = [&](bool present, const char* field, double value, const Range& range,
                          double* to) {
    if (!present) return;
    complaint.RequireRange(field, value, range);
    *to = value;
  };
  number(in.has_temperature(), "temperature", in.temperature(), kTemperatureRange,
         &out->temperature);
  number(in.has_top_p(), "top_p", in.top_p(), kTopPRange, &out->top_p);
  out->top_p = std::max(kLeastTopP, out->top_p);
  number(in.has_min_p(), "min_p", in.min_p(), kMinPRange, &out->min_p);
  number(in.has_repetition_penalty(), "repetition_penalty", in.repetition_penalty(),
         kRepetitionPenaltyRange, &out->repetition_penalty);
  number(in.has_presence_penalty(), "presence_penalty", in.presence_penalty(), kPenaltyRange,
         &out->presence_penalty);
  number(in.has_frequency_penalty(), "frequency_penalty", in.frequency_penalty(), kPenaltyRange,
         &out->frequency_penalty);
  complaint.RequireRange("top_k", in.top_k(), kTopKRange);
  out->top_k = std::max(0, in.top_k());
  complaint.RequireAtMost("logit_bias", static_cast<int>(in.logit_bias().size()), kMaxLogitBiases,
                          "entries");
  for (const auto& [id, bias] : in.logit_bias()) {
    complaint.RequireRange("logit_bias", bias, kLogitBiasRange);
    out->logit_bias.emplace_back(complaint.Token("logit_bias", id), bias);
  }
  std::sort(out->logit_bias.begin(), out->logit_bias.end());  // maps have no order
  out->allowed_tokens = complaint.Tokens("allowed_token_ids", in.allowed_token_ids());
  if (in.has_seed()) out->seed = static_cast<uint64_t>(in.seed());
}

void ReadStop(const v1::Stop& in, int32_t default_max_tokens, engine::StopParams* out,
              Complaint& complaint) {
  const Range context{0, static_cast<double>(complaint.limits().max_context_tokens)};
  out->max_tokens = in.has_max_tokens() ? in.max_tokens() : default_max_tokens;
  complaint.RequireRange("max_tokens", out->max_tokens, context);
  out->min_tokens = in.min_tokens();
  complaint.RequireRange("min_tokens", out->min_tokens, context);
  if (out->min_tokens > out->max_tokens) {
    complaint.Refuse("min_tokens", Concat("is ", out->min_tokens, ", more than max_tokens (",
                                          out->max_tokens, ")"));
  }
  out->ignore_eos = in.ignore_eos();
  out->include_stop_in_output = in.include_stop_in_output();
  complaint.RequireAtMost("stop", in.stop_size(), kMaxStopStrings, "strings");
  for (const std::string& text : in.stop()) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      complaint.Refuse(
          "stop", Concat("must hold strings of 1 to ", kMaxStopBytes, " bytes, not ", text.size()));
      return;
    }
    out->stop.push_back(text);
  }
  complaint.RequireAtMost("stop_token_ids", in.stop_token_ids_size(), kMaxStopTokenIds, "ids");
  out->stop_token_ids = complaint.Tokens("stop_token_ids", in.stop_token_ids());
}

void ReadChoices(const v1::GenerationParams& in, engine::Request* out, Complaint& complaint) {
  const Range choices{1, static_cast<double>(complaint.limits().max_choices)};
  if (in.has_n()) {
    complaint.RequireRange("n", in.n(), choices);
    out->n = in.n();
  }
  if (in.has_best_of()) {
    complaint.RequireRange("best_of", in.best_of(), choices);
    out->best_of = in.best_of();
    if (in.best_of() < out->n) {
      complaint.Refuse("best_of", Concat("is ", in.best_of(), ", less than n, which is ", out->n));
    }
  }
  if (!in.has_beam()) return;
  constexpr double kMax = engine::BeamParams::kMaxLengthPenalty;
  engine::BeamParams beam;
  if (in.beam().has_length_penalty()) beam.length_penalty = in.beam().length_penalty();
  complaint.RequireRange("length_penalty", beam.length_penalty, {-kMax, kMax});
  beam.early_stopping = in.beam().early_stopping();
  out->beam = beam;
}

void ReadParams(const v1::GenerationParams& in, int32_t default_max_tokens, engine::Request* out,
                Complaint& complaint) {
  ReadSampling(in.sampling(), &out->sampling, complaint);
  ReadStop(in.stop(), default_max_tokens, &out->stop, complaint);
  ReadChoices(in, out, complaint);
  out->echo = in.echo();
  if (in.logprobs().has_top()) {
    complaint.RequireRange("logprobs.top", in.logprobs().top(), kTopLogprobsRange);
    out->logprobs.top = in.logprobs().top();
  }
  if (in.logprobs().has_prompt_top()) {
    complaint.RequireRange("logprobs.prompt_top", in.logprobs().prompt_top(), kTopLogprobsRange);
    if (!in.echo()) complaint.Refuse("logprobs.prompt_top", "is only allowed with echo");
    out->logprobs.prompt_top = in.logprobs().prompt_top();
  }
  out->priority = in.priority();
  if (in.has_cache_salt()) ReadSalt(in.cache_salt(), "cache_salt", out, complaint);
  if (in.has_timeout_s()) {
    complaint.RequireRange("timeout_s", in.timeout_s(), {0, 1e9, true});
    out->timeout_s = in.timeout_s();
  }
}

absl::Status CheckModel(const std::string& model, const ModelLimits& limits) {
  if (model.empty() || model == limits.served_name) return absl::OkStatus();
  return WithParam(WithCode(absl::NotFoundError(Concat("the model '", model.substr(0, 200),
                                                       "' does not exist; this server has '",
                                                       limits.served_name, "'")),
                            "model_not_found"),
                   "model");
}

}  // namespace

absl::StatusOr<engine::Request> ReadGenerate(const v1::GenerateRequest& in,
                                             const ModelLimits& limits) {
  Complaint complaint(limits);
  complaint.Fail(CheckModel(in.model(), limits));
  engine::Request request;
  const int32_t default_max_tokens =
      in.has_chat() ? limits.max_context_tokens : kDefaultCompletionTokens;
  ReadParams(in.params(), default_max_tokens, &request, complaint);
  ReadPrompt(in, &request, complaint);
  if (!complaint.status().ok()) return complaint.status();
  return request;
}

absl::StatusOr<engine::Request> ReadChat(const v1::ChatRequest& in, const ModelLimits& limits) {
  Complaint complaint(limits);
  complaint.Fail(CheckModel(in.model(), limits));
  engine::Request request;
  ReadParams(in.params(), limits.max_context_tokens, &request, complaint);
  request.prompt = ReadChatPrompt(in.chat(), complaint);
  if (!complaint.status().ok()) return complaint.status();
  return request;
}

absl::StatusOr<engine::Request> ReadCachedPrompt(const v1::CachedPrompt& in,
                                                 const ModelLimits& limits) {
  Complaint complaint(limits);
  engine::Request request;
  request.stop.max_tokens = 0;
  request.tenant = in.tenant();
  if (in.has_cache_salt()) ReadSalt(in.cache_salt(), "cache_salt", &request, complaint);
  ReadPrompt(in, &request, complaint);
  if (!complaint.status().ok()) return complaint.status();
  return request;
}

}  // namespace refrain::server::rpc
