#include "server/openai/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/openai/cache_hints.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

void ReadLogitBias(FieldReader& fields, const ModelLimits& limits,
                   engine::SamplingParams* sampling) {
  fields.Describe("logit_bias", R"({"type":["object","null"],"maxProperties":4096,"propertyNames":)"
                                R"({"pattern":"^(0|[1-9][0-9]*)$"},"additionalProperties":)"
                                R"({"type":"number","minimum":-100,"maximum":100}})");
  const Json* biases = fields.ObjectOrNull("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > kMaxLogitBiases) {
    fields.Refuse("logit_bias", Concat("has ", biases->size(), " entries; at most ",
                                       kMaxLogitBiases, " are accepted"));
    return;
  }
  std::vector<std::pair<engine::TokenId, float>> read;
  for (const auto& [name, value] : biases->items()) {
    int32_t id = -1;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), id);
    // Without leading zeros, or one token could be named twice.
    const bool plain = name == "0" || (!name.empty() && name.front() >= '1' && name.front() <= '9');
    if (!plain || parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() ||
        id >= limits.vocab_size) {
      fields.Refuse("logit_bias", Concat("names the token ", ShownValue(Json(name)),
                                         "; token ids go from 0 to ", limits.vocab_size - 1));
      return;
    }
    if (!value.is_number() || !kLogitBiasRange.Contains(value.get<double>())) {
      fields.Refuse("logit_bias", LogitBiasProblem(id, ShownValue(value)));
      return;
    }
    read.emplace_back(engine::TokenId{id}, value.get<float>());
  }
  sampling->logit_bias = std::move(read);
}

void ReadBadWords(FieldReader& fields, engine::SamplingParams* sampling) {
  fields.Describe("bad_words", R"({"type":["array","null"],"maxItems":256,"items":)"
                               R"({"type":"string","pattern":"[^ ]","maxLength":256}})");
  const Json* words = fields.ArrayOrNull("bad_words");
  if (words == nullptr) return;
  if (words->size() > kMaxBadWords) {
    fields.Refuse("bad_words",
                  Concat("has ", words->size(), " words; at most ", kMaxBadWords, " are accepted"));
    return;
  }
  std::vector<std::string> read;
  for (const Json& word : *words) {
    if (!word.is_string() || !IsBadWord(word.get_ref<const std::string&>())) {
      fields.Refuse("bad_words",
                    Concat("must be an array of strings of 1 to ", kMaxBadWordCharacters,
                           " characters, none of spaces alone"));
      return;
    }
    read.push_back(word.get<std::string>());
  }
  sampling->bad_words = std::move(read);
}

void ReadStop(FieldReader& fields, const Json& value, engine::StopParams* stop) {
  const size_t count = value.is_array() ? value.size() : 1;
  if (count > kMaxStopStrings) {
    fields.Refuse("stop",
                  Concat("has ", count, " strings; at most ", kMaxStopStrings, " are accepted"));
    return;
  }
  std::vector<std::string> strings;
  for (size_t i = 0; i < count; ++i) {
    const Json& text = value.is_array() ? value[i] : value;
    if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
        engine::CountUtf8Characters(text.get_ref<const std::string&>()) > kMaxStopCharacters) {
      const std::string place = value.is_array() ? Concat(" at index ", i) : "";
      fields.Refuse("stop", StopProblem(ShownValue(text) + place));
      return;
    }
    strings.push_back(text.get<std::string>());
  }
  stop->stop = std::move(strings);
}

// Of no effect. A wrong type is refused all the same, as by OpenAI's own server: whoever sends one
// would not find there what was meant to be kept.
void ReadLabels(FieldReader& fields) {
  fields.String("user");
  fields.Describe("metadata",
                  R"({"type":["object","null"],"additionalProperties":{"type":"string"}})");
  const Json* metadata = fields.ObjectOrNull("metadata");
  if (metadata == nullptr) return;
  for (const auto& [name, value] : metadata->items()) {
    if (value.is_string()) continue;
    fields.Refuse("metadata", Concat("of key ", ShownValue(Json(name)), " must be a string, not ",
                                     ShownValue(value)));
    return;
  }
}

// What would make another answer of it. Left out silently, it would pass for done.
void RefuseUnsupported(FieldReader& fields) {
  for (const char* const name :
       {"logprob_token_ids", "repetition_detection", "logits_processors"}) {
    fields.Describe(name, kEmptySchema);
    if (!IsEmpty(fields.AnyOrNull(name))) fields.Refuse(name, "is not supported");
  }
  fields.Describe("watermark", R"({"enum":[false,null]})");
  if (fields.Bool("watermark").value_or(false)) fields.Refuse("watermark", "is not supported");
}

}  // namespace

bool IsEmpty(const Json* value_or_null) {
  if (value_or_null == nullptr || value_or_null->empty()) return true;
  const auto* const text = value_or_null->get_ptr<const std::string*>();
  return text != nullptr && text->empty();
}

std::string TokenIdsSchema(const ModelLimits& limits, int64_t most) {
  return Concat(R"({"type":"array","minItems":1,)",
                most > 0 ? Concat(R"("maxItems":)", most, ",") : "",
                R"("items":{"type":"integer","minimum":0,"maximum":)", limits.vocab_size - 1, "}}");
}

std::vector<engine::TokenId> ReadTokenIds(FieldReader& fields, std::string_view name,
                                          const Json& array, const ModelLimits& limits) {
  std::vector<engine::TokenId> ids;
  ids.reserve(array.size());
  for (const Json& element : array) {
    const auto id = IntegerValue(element);
    if (!id.has_value() || *id < 0 || *id >= limits.vocab_size) {
      fields.Refuse(name, Concat("holds ", ShownValue(element), " at index ", ids.size(),
                                 "; token ids go from 0 to ", limits.vocab_size - 1));
      return {};
    }
    ids.push_back(engine::TokenId{static_cast<int32_t>(*id)});
  }
  return ids;
}

void ReadModel(FieldReader& fields, const ModelLimits& limits) {
  if (fields.describes()) {
    std::string name;
    AppendJsonString(limits.served_name, &name);
    fields.Describe("model", Concat("{\"enum\":[", name, R"(,"",null]})"));
  }
  const auto model = fields.String("model", 4096);
  // What a client sends whose setting for it was left blank.
  if (model.value_or("").empty()) return;
  if (*model != limits.served_name) {
    fields.Fail(UnknownModel(*model, limits.served_name));
  }
}

void ReadSamplingFields(FieldReader& fields, const ModelLimits& limits, engine::Request* request) {
  engine::SamplingParams& sampling = request->sampling;
  const auto defaults = request->beam.has_value() ? engine::SamplingParams() : limits.sampling;
  const auto number = [&](std::string_view name, const Range& range, double otherwise) {
    return fields.Number(name, range).value_or(otherwise);
  };
  sampling.temperature = number("temperature", kTemperatureRange, defaults.temperature);
  sampling.top_p = std::max(kLeastTopP, number("top_p", kTopPRange, defaults.top_p));
  sampling.min_p = std::min(kMostMinP, number("min_p", kMinPRange, defaults.min_p));
  const int64_t top_k = fields.Integer("top_k", kTopKRange).value_or(defaults.top_k);
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(0, top_k));
  sampling.repetition_penalty =
      number("repetition_penalty", kRepetitionPenaltyRange, defaults.repetition_penalty);
  sampling.presence_penalty = number("presence_penalty", kPenaltyRange, defaults.presence_penalty);
  sampling.frequency_penalty =
      number("frequency_penalty", kPenaltyRange, defaults.frequency_penalty);
  // -1 is what clients of other servers send for none.
  if (const auto seed = fields.Integer("seed", kInt64Range); seed.value_or(-1) != -1) {
    sampling.seed = static_cast<uint64_t>(*seed);
  }
  ReadLogitBias(fields, limits, &sampling);
  if (fields.describes()) {
    fields.Describe("allowed_token_ids", Concat(R"({"anyOf":[{"type":"null"},)",
                                                TokenIdsSchema(limits, limits.vocab_size), "]}"));
  }
  if (const Json* allowed = fields.ArrayOrNull("allowed_token_ids")) {
    const auto most = static_cast<size_t>(limits.vocab_size);
    if (allowed->empty()) {
      fields.Refuse("allowed_token_ids", "must not be empty");
    } else if (allowed->size() > most) {
      fields.Refuse("allowed_token_ids", Concat("has ", allowed->size(), " ids; at most ", most,
                                                " are accepted: as many as there are tokens"));
    } else {
      sampling.allowed_tokens = ReadTokenIds(fields, "allowed_token_ids", *allowed, limits);
    }
  }
  ReadBadWords(fields, &sampling);
  const auto budget = fields.Integer("thinking_token_budget", kThinkingBudgetRange);
  if (budget.value_or(-1) != -1) sampling.thinking_budget_tokens = static_cast<int32_t>(*budget);
  request->priority = fields.Integer("priority", kInt64Range).value_or(0);
  fields.Describe("cache_salt", R"({"type":["string","null"],"minLength":1,"maxLength":128})");
  if (auto salt = fields.String("cache_salt")) {
    constexpr size_t kMax = engine::Request::kMaxCacheSaltCharacters;
    const size_t characters = engine::CountUtf8Characters(*salt);
    if (characters == 0 || characters > kMax) {
      fields.Refuse("cache_salt", Concat("must have 1 to ", kMax, " characters, not ", characters));
    }
    request->cache_salt = *std::move(salt);
  }
  ReadLabels(fields);
  RefuseUnsupported(fields);
  for (const char* name : {"store", "service_tier", "spaces_between_special_tokens", "detokenize",
                           "safety_identifier"}) {
    fields.Ignore(name);
  }
}

std::string LogitBiasProblem(int32_t token_id, std::string_view shown) {
  return Concat("of token ", token_id, " must be a number of ", kLogitBiasRange.Text(), ", not ",
                shown);
}

std::string StopProblem(std::string_view shown) {
  return Concat("must be a string of 1 to ", kMaxStopCharacters,
                " characters, or an array of such strings, not ", shown);
}

void ReadStopFields(FieldReader& fields, std::string_view max_tokens_name,
                    const ModelLimits& limits, engine::StopParams* stop) {
  fields.Describe("stop", R"({"anyOf":[{"type":"null"},{"$ref":"#/components/schemas/Stop"},)"
                          R"({"type":"array","maxItems":16,"items":)"
                          R"({"$ref":"#/components/schemas/Stop"}}]})");
  if (const Json* value = fields.AnyOrNull("stop")) ReadStop(fields, *value, stop);
  if (fields.describes()) {
    fields.Describe("stop_token_ids",
                    Concat(R"({"anyOf":[{"type":"null"},{"type":"array",)", R"("maxItems":0},)",
                           TokenIdsSchema(limits, kMaxStopTokenIds), "]}"));
  }
  if (const Json* ids = fields.ArrayOrNull("stop_token_ids")) {
    if (ids->size() > kMaxStopTokenIds) {
      fields.Refuse("stop_token_ids", Concat("has ", ids->size(), " ids; at most ",
                                             kMaxStopTokenIds, " are accepted"));
    } else {
      stop->stop_token_ids = ReadTokenIds(fields, "stop_token_ids", *ids, limits);
    }
  }
  stop->ignore_eos = fields.Bool("ignore_eos").value_or(false);
  stop->include_stop_in_output = fields.Bool("include_stop_str_in_output").value_or(false);
  const auto max_context = static_cast<double>(limits.max_context_tokens);
  stop->min_tokens =
      static_cast<int32_t>(fields.Integer("min_tokens", {0, max_context}).value_or(0));
  if (stop->min_tokens > stop->max_tokens) {
    fields.Refuse("min_tokens", Concat("is ", stop->min_tokens, ", more than ", max_tokens_name,
                                       " (", stop->max_tokens, ")"));
  }
}

int32_t KeptPromptTokens(int64_t truncate, const engine::StopParams& stop,
                         const ModelLimits& limits) {
  if (truncate != -1) return static_cast<int32_t>(truncate);
  // As much as leaves room for the answer, where its length was told.
  // gRPC asks this of lengths that it is about to refuse, too.
  const bool told = stop.max_tokens >= 0 && stop.max_tokens < limits.max_context_tokens;
  return std::max(1, limits.max_context_tokens - (told ? stop.max_tokens : 1));
}

bool ExpectsReuse(std::optional<bool> retained, bool has_key, const engine::StopParams& stop) {
  // Who names a key expects to come back, and a warm request has no other purpose.
  return retained.value_or(has_key || stop.max_tokens == 0);
}

void ReadCacheFields(FieldReader& fields, GenerationCall* call, engine::Request* request) {
  const auto key = fields.String("prompt_cache_key", kMaxCacheKeyCharacters);
  fields.Describe("prompt_cache_retention", R"({"enum":["in_memory","in-memory","24h",null]})");
  const auto retention = fields.String("prompt_cache_retention", 64);
  if (retention.has_value() && retention != "24h" && retention != "in_memory" &&
      retention != "in-memory") {
    fields.Refuse("prompt_cache_retention",
                  Concat("must be \"in_memory\" or \"24h\", not \"", *retention, "\""));
  }
  // Messages are described where they are read.
  const bool has_messages = call->endpoint != Endpoint::kCompletions && !fields.describes();
  std::optional<bool> retained =
      ReadCacheHints(fields, has_messages ? InputField(call->endpoint) : "");
  if (!retained.has_value() && retention.has_value()) retained = retention == "24h";
  request->keep_cached = ExpectsReuse(retained, key.has_value(), request->stop);
  call->output.cache_report = fields.Bool("cache_report").value_or(false);
}

void ReadOutputFields(FieldReader& fields, const ModelLimits& limits, GenerationCall* call,
                      engine::Request* request) {
  OutputOptions& output = call->output;
  output.skip_special = fields.Bool("skip_special_tokens").value_or(true);
  request->stop.skip_special = output.skip_special;
  output.token_ids = fields.Bool("return_token_ids").value_or(false);
  output.tokens_as_ids = fields.Bool("return_tokens_as_token_ids").value_or(false);
  if (const auto top = fields.Integer("prompt_logprobs", {0, kMaxPromptLogprobs})) {
    output.prompt_logprobs = static_cast<int32_t>(*top);
    // One row of the model serves both.
    request->logprobs.prompt_top = std::max(output.prompt_logprobs, request->logprobs.prompt_top);
    if (call->stream) fields.Refuse("prompt_logprobs", "is not available with 'stream'");
  }
  request->tell_prompt = output.token_ids;
  const auto max_context = static_cast<double>(limits.max_context_tokens);
  if (fields.describes()) {
    fields.Describe("truncate_prompt_tokens",
                    Concat(R"({"anyOf":[{"enum":[-1,null]},{"type":"integer","minimum":1,)",
                           R"("maximum":)", limits.max_context_tokens, "}]}"));
  }
  if (const auto kept = fields.Integer("truncate_prompt_tokens", {-1, max_context})) {
    if (*kept == 0) fields.Refuse("truncate_prompt_tokens", "must be -1 or at least 1, not 0");
    request->keep_prompt_tokens = KeptPromptTokens(*kept, request->stop, limits);
  }
  fields.Describe("truncation_side", R"({"enum":["left",null]})");
  if (const auto side = fields.String("truncation_side", 64); side.value_or("left") != "left") {
    fields.Refuse("truncation_side",
                  Concat("must be \"left\", not \"", *side, "\": the prompt's end is kept"));
  }
}

void ReadStreamFields(FieldReader& fields, GenerationCall* call) {
  call->stream = fields.Bool("stream").value_or(false);
  fields.Describe("stream_options", R"({"type":["object","null"],"properties":{"include_usage":)"
                                    R"({"type":["boolean","null"]},"continuous_usage_stats":)"
                                    R"({"type":["boolean","null"]},"include_obfuscation":)"
                                    R"({"type":["boolean","null"]}}})");
  const Json* options = fields.ObjectOrNull("stream_options");
  if (options == nullptr || (options->empty() && !call->stream)) return;
  if (!call->stream) {
    fields.Refuse("stream_options", "is only allowed when 'stream' is true");
    return;
  }
  FieldReader inner(*options, "stream_options.");
  call->include_usage = inner.Bool("include_usage").value_or(false);
  // As clients and servers agree: every chunk only together with the last one.
  call->continuous_usage =
      inner.Bool("continuous_usage_stats").value_or(false) && call->include_usage;
  inner.Bool("include_obfuscation");  // of no effect: nothing is padded
  fields.Fail(inner.status());
}

}  // namespace refrain::server::openai
