#include "server/grpc/request_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/grpc/chat_reader.h"
#include "server/grpc/complaint.h"
#include "server/json.h"
#include "server/openai/answer_form.h"
#include "server/openai/choice_fields.h"
#include "server/openai/field_reader.h"
#include "server/openai/sampling_fields.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

engine::TextPrompt ReadTextPrompt(const v1::TextPrompt& in) {
  return {in.text(), in.has_add_special_tokens() ? in.add_special_tokens() : true};
}

using Form = std::optional<engine::OutputFormat>;  // none: any text

// Of a message with the members text, tokens and chat.
template <typename Message>
void ReadPrompt(const Message& in, GenerationRequest* out, Form* form, Complaint& complaint) {
  engine::Request* const request = &out->request;
  switch (in.prompt_case()) {
    case Message::kText:
      request->prompt = ReadTextPrompt(in.text());
      break;
    case Message::kTokens:
      request->prompt = engine::TokenPrompt{complaint.Tokens("tokens.ids", in.tokens().ids())};
      break;
    case Message::kChat:
      request->prompt = ReadChatPrompt(in.chat(), out, form, complaint);
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

// Over what is there by default.
void ReadSampling(const v1::Sampling& in, engine::SamplingParams* out, Complaint& complaint) {
  const Complaint::Inside inside(complaint, "sampling");
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
  out->min_p = std::min(kMostMinP, out->min_p);
  number(in.has_repetition_penalty(), "repetition_penalty", in.repetition_penalty(),
         kRepetitionPenaltyRange, &out->repetition_penalty);
  number(in.has_presence_penalty(), "presence_penalty", in.presence_penalty(), kPenaltyRange,
         &out->presence_penalty);
  number(in.has_frequency_penalty(), "frequency_penalty", in.frequency_penalty(), kPenaltyRange,
         &out->frequency_penalty);
  if (in.has_top_k()) {
    complaint.RequireRange("top_k", in.top_k(), kTopKRange);
    out->top_k = std::max(0, in.top_k());
  }
  complaint.RequireAtMost("logit_bias", static_cast<int>(in.logit_bias().size()), kMaxLogitBiases,
                          "entries");
  std::vector<std::pair<engine::TokenId, float>> biases;
  for (const auto& [id, bias] : in.logit_bias()) {
    if (!complaint.ok()) return;
    biases.emplace_back(complaint.Token("logit_bias", id), bias);
    if (kLogitBiasRange.Contains(bias)) continue;
    complaint.Refuse("logit_bias", openai::LogitBiasProblem(id, Concat(bias)));
  }
  std::sort(biases.begin(), biases.end());  // maps have no order
  out->logit_bias = std::move(biases);
  complaint.RequireAtMost("allowed_token_ids", in.allowed_token_ids_size(),
                          static_cast<size_t>(complaint.limits().vocab_size), "ids");
  if (!complaint.ok()) return;
  out->allowed_tokens = complaint.Tokens("allowed_token_ids", in.allowed_token_ids());
  if (in.has_seed()) out->seed = static_cast<uint64_t>(in.seed());
  if (in.has_thinking_token_budget()) {
    complaint.RequireRange("thinking_token_budget", in.thinking_token_budget(),
                           kThinkingBudgetRange);
    if (in.thinking_token_budget() != -1) out->thinking_budget_tokens = in.thinking_token_budget();
  }
  complaint.RequireAtMost("bad_words", in.bad_words_size(), kMaxBadWords, "words");
  if (!complaint.ok()) return;
  std::vector<std::string> words;
  for (const std::string& word : in.bad_words()) {
    if (!IsBadWord(word)) {
      complaint.RefuseElement("bad_words", static_cast<int>(words.size()),
                              Concat("must hold strings of 1 to ", kMaxBadWordCharacters,
                                     " characters, none of spaces alone, not one of ",
                                     engine::CountUtf8Characters(word)));
      return;
    }
    words.push_back(word);
  }
  out->bad_words = std::move(words);
}

void ReadStop(const v1::Stop& in, int32_t default_max_tokens, engine::StopParams* out,
              Complaint& complaint) {
  const Complaint::Inside inside(complaint, "stop");
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
  if (!complaint.ok()) return;
  std::vector<std::string> strings;
  for (const std::string& text : in.stop()) {
    if (text.empty() || engine::CountUtf8Characters(text) > kMaxStopCharacters) {
      complaint.RefuseElement(
          "stop", static_cast<int>(strings.size()),
          openai::StopProblem(Concat(ShownValue(Json(text)), " at index ", strings.size())));
      return;
    }
    strings.push_back(text);
  }
  out->stop = std::move(strings);
  complaint.RequireAtMost("stop_token_ids", in.stop_token_ids_size(), kMaxStopTokenIds, "ids");
  if (!complaint.ok()) return;
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
  const Complaint::Inside inside(complaint, "beam");
  complaint.RequireRange("length_penalty", beam.length_penalty, {-kMax, kMax});
  beam.early_stopping = in.beam().early_stopping();
  out->beam = beam;
}

void ReadLogprobs(const v1::GenerationParams& in, GenerationRequest* out, Complaint& complaint) {
  engine::LogprobParams& logprobs = out->request.logprobs;
  if (in.logprobs().has_top()) {
    complaint.RequireRange("logprobs.top", in.logprobs().top(), kTopLogprobsRange);
    logprobs.top = in.logprobs().top();
  }
  if (in.logprobs().has_prompt_top()) {
    complaint.RequireRange("logprobs.prompt_top", in.logprobs().prompt_top(), kTopLogprobsRange);
    logprobs.prompt_top = in.logprobs().prompt_top();
  }
  const bool of_prompt = logprobs.prompt_top.has_value();
  out->answer.logprobs = logprobs.top.has_value() || (of_prompt && in.echo());
  out->answer.prompt_logprobs = of_prompt && !in.echo();
}

// What becomes of the prompt in the cache, and how much of it counts.
void ReadCaching(const v1::GenerationParams& in, engine::Request* out, Complaint& complaint) {
  if (in.has_cache_salt()) ReadSalt(in.cache_salt(), "cache_salt", out, complaint);
  if (engine::CountUtf8Characters(in.prompt_cache_key()) > kMaxCacheKeyCharacters) {
    complaint.Refuse("prompt_cache_key",
                     Concat("has ", engine::CountUtf8Characters(in.prompt_cache_key()),
                            " characters; at most ", kMaxCacheKeyCharacters, " are accepted"));
  }
  std::optional<bool> retained;
  switch (in.prompt_cache_retention()) {
    case v1::PROMPT_CACHE_RETENTION_UNSPECIFIED:
      break;
    case v1::PROMPT_CACHE_RETENTION_IN_MEMORY:
    case v1::PROMPT_CACHE_RETENTION_24H:
      retained = in.prompt_cache_retention() == v1::PROMPT_CACHE_RETENTION_24H;
      break;
    default:
      complaint.Refuse("prompt_cache_retention",
                       Concat("must be one of PromptCacheRetention, not ",
                              static_cast<int32_t>(in.prompt_cache_retention())));
  }
  out->keep_cached = openai::ExpectsReuse(retained, in.has_prompt_cache_key(), out->stop);
  if (!in.has_truncate_prompt_tokens()) return;
  const int32_t kept = in.truncate_prompt_tokens();
  if (kept == 0) complaint.Refuse("truncate_prompt_tokens", "must be -1 or at least 1, not 0");
  complaint.RequireRange("truncate_prompt_tokens", kept,
                         {-1, static_cast<double>(complaint.limits().max_context_tokens)});
  out->keep_prompt_tokens = openai::KeptPromptTokens(kept, out->stop, complaint.limits());
}

Form ReadStructuredOutput(const v1::StructuredOutput& in, Complaint& complaint) {
  const Complaint::Inside inside(complaint, "structured_output");
  engine::OutputFormat format;
  std::string_view field;
  switch (in.form_case()) {
    case v1::StructuredOutput::kJsonObject:
      if (!in.json_object()) return std::nullopt;
      field = "json_object";
      break;
    case v1::StructuredOutput::kJsonSchema: {
      field = "json_schema";
      auto& schema = format.form.emplace<engine::OutputFormat::JsonSchema>();
      const std::string problem = openai::TakeSchemaText(in.json_schema(), &schema);
      if (!problem.empty()) complaint.Refuse(field, problem);
      break;
    }
    case v1::StructuredOutput::kRegex:
      field = "regex";
      format.form = engine::OutputFormat::Regex{in.regex()};
      break;
    case v1::StructuredOutput::kChoice: {
      field = "choice.texts";
      complaint.RequireAtMost(field, in.choice().texts_size(), kMaxFormChoices, "texts");
      if (!complaint.ok()) return std::nullopt;
      auto& choice = format.form.emplace<engine::OutputFormat::Choice>();
      choice.texts.assign(in.choice().texts().begin(), in.choice().texts().end());
      break;
    }
    case v1::StructuredOutput::kGrammar:
      field = "grammar";
      format.form = engine::OutputFormat::Ebnf{in.grammar()};
      break;
    case v1::StructuredOutput::FORM_NOT_SET:
      complaint.Refuse("form", "is required: json_object, json_schema, regex, choice or grammar");
      return std::nullopt;
  }
  format.field = complaint.PathOf(field);
  if (const std::string problem = openai::FormProblem(format); !problem.empty()) {
    complaint.Refuse(field, problem);
  }
  return format;
}

// Where GenerationParams has what HTTP calls `param`.
std::string FieldOf(std::string_view param) {
  const std::string name(param);
  if (name == "use_beam_search") return "beam";
  if (v1::Sampling::descriptor()->FindFieldByName(name) != nullptr) return "sampling." + name;
  if (v1::Stop::descriptor()->FindFieldByName(name) != nullptr) return "stop." + name;
  return name;
}

// Once all of the request is read: what only together is wrong, as HTTP refuses it.
void RefuseContradictions(const engine::Request& request, Complaint& complaint) {
  const Complaint::Inside inside(complaint, "params");
  const Json nothing = Json::object();
  openai::FieldReader fields(nothing, "");
  openai::RefuseContradictions(fields, complaint.limits(), request, /*stream=*/false);
  complaint.FailAsOverHttp(fields.status(), FieldOf);
}

// The form that is asked for has yet to be made a part of the request.
Form ReadParams(const v1::GenerationParams& in, int32_t default_max_tokens, GenerationRequest* out,
                Complaint& complaint) {
  const Complaint::Inside inside(complaint, "params");
  engine::Request& request = out->request;
  if (!in.has_beam()) request.sampling = complaint.limits().sampling;
  ReadSampling(in.sampling(), &request.sampling, complaint);
  ReadStop(in.stop(), default_max_tokens, &request.stop, complaint);
  ReadChoices(in, &request, complaint);
  request.echo = in.echo();
  ReadLogprobs(in, out, complaint);
  request.priority = in.priority();
  ReadCaching(in, &request, complaint);
  if (in.has_timeout_s()) {
    complaint.RequireRange("timeout_s", in.timeout_s(), kTimeoutRange);
    request.timeout_s = in.timeout_s();
  }
  request.tell_prompt = in.return_prompt_token_ids();
  AnswerOptions& answer = out->answer;
  answer.num_choices = request.n;
  answer.shown.skip_special = in.has_skip_special_tokens() ? in.skip_special_tokens() : true;
  request.stop.skip_special = answer.shown.skip_special;
  answer.shown.stream_tool_calls = true;
  answer.shows_end_token = request.stop.include_stop_in_output;
  answer.echo = in.echo();
  answer.prompt_token_ids = in.return_prompt_token_ids();
  answer.cache_report = in.cache_report();
  answer.continuous_usage = in.continuous_usage();
  if (!in.has_structured_output()) return std::nullopt;
  return ReadStructuredOutput(in.structured_output(), complaint);
}

// A prompt that explains tools shows what calls look like, and a thought begins behind it.
void LeaveEchoAsItIs(AnswerOptions* answer) {
  if (!answer->echo) return;
  answer->shown.tools = engine::ToolFormat::kNone;
  answer->shown.reasoning = engine::ReasoningFormat::kNone;
}

absl::StatusOr<GenerationRequest> Finish(GenerationRequest out, Form form, Complaint& complaint) {
  openai::SetForm(std::move(form), &out.request);
  RefuseContradictions(out.request, complaint);
  LeaveEchoAsItIs(&out.answer);
  if (!complaint.ok()) return complaint.status();
  return out;
}

absl::Status CheckModel(const std::string& model, const ModelLimits& limits) {
  if (model.empty() || model == limits.served_name) return absl::OkStatus();
  return UnknownModel(model, limits.served_name);
}

}  // namespace

absl::StatusOr<GenerationRequest> ReadGenerate(const v1::GenerateRequest& in,
                                               const ModelLimits& limits) {
  Complaint complaint(limits);
  complaint.Fail(CheckModel(in.model(), limits));
  GenerationRequest out;
  const int32_t default_max_tokens =
      in.has_chat() ? limits.max_context_tokens : kDefaultCompletionTokens;
  Form form = ReadParams(in.params(), default_max_tokens, &out, complaint);
  ReadPrompt(in, &out, &form, complaint);
  return Finish(std::move(out), std::move(form), complaint);
}

absl::StatusOr<GenerationRequest> ReadChat(const v1::ChatRequest& in, const ModelLimits& limits) {
  Complaint complaint(limits);
  complaint.Fail(CheckModel(in.model(), limits));
  GenerationRequest out;
  Form form = ReadParams(in.params(), limits.max_context_tokens, &out, complaint);
  out.request.prompt = ReadChatPrompt(in.chat(), &out, &form, complaint);
  return Finish(std::move(out), std::move(form), complaint);
}

absl::StatusOr<engine::Request> ReadCachedPrompt(const v1::CachedPrompt& in,
                                                 const ModelLimits& limits) {
  Complaint complaint(limits);
  const Complaint::Inside inside(complaint, "prompt");
  GenerationRequest out;  // nothing of it is shown
  engine::Request& request = out.request;
  request.stop.max_tokens = 0;
  request.keep_cached = true;  // as over HTTP, where max_tokens 0 says the same
  request.tenant = in.tenant();
  if (in.has_cache_salt()) ReadSalt(in.cache_salt(), "cache_salt", &request, complaint);
  Form form;  // nothing is generated
  ReadPrompt(in, &out, &form, complaint);
  if (!complaint.ok()) return complaint.status();
  return std::move(request);
}

}  // namespace refrain::server::rpc
