#include "engine/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/architecture.h"
#include "engine/model/quoted_name.h"
#include "engine/model/strict_json.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;
using Limits = ModelLimits;

// Typed reading of one JSON object. null reads as absent, absent as nullopt; a wrong type reads as
// nullopt and is kept as the first error.
class ConfigObject {
 public:
  ConfigObject(const Json& object, std::string what, absl::Status& status)
      : object_(object), what_(std::move(what)), status_(status) {}

  const Json* FindOrNull(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool IsNull(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && found->is_null();
  }
  std::optional<int> Integer(const char* key, int low, int high) {
    const Json* value = FindOrNull(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) return WrongType(key, "an integer");
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= INT32_MAX
                                                  : value->get<int64_t>() >= INT32_MIN;
    const int64_t number = fits ? value->get<int64_t>() : INT64_MAX;
    if (number < low || number > high) {
      Fail(absl::InvalidArgumentError(
          absl::StrCat(what_, ": ", key, " is ", value->dump(), ", must be ", low, " to ", high)));
      return std::nullopt;
    }
    return static_cast<int>(number);
  }
  std::optional<double> Real(const char* key) {
    const Json* value = FindOrNull(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || !std::isfinite(value->get<double>())) {
      return WrongType(key, "a finite number");
    }
    return value->get<double>();
  }
  std::optional<bool> Boolean(const char* key) {
    const Json* value = FindOrNull(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) return WrongType(key, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> String(const char* key) {
    const Json* value = FindOrNull(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) return WrongType(key, "a string");
    return value->get<std::string>();
  }
  int RequiredInteger(const char* key, int low, int high) {
    if (FindOrNull(key) == nullptr) Missing(key);
    return Integer(key, low, high).value_or(0);
  }
  double RequiredReal(const char* key) {
    if (FindOrNull(key) == nullptr) Missing(key);
    return Real(key).value_or(0.0);
  }
  void Fail(absl::Status error) { status_.Update(std::move(error)); }
  void FailUnimplemented(const std::string& text) {
    Fail(absl::UnimplementedError(absl::StrCat(what_, ": ", text)));
  }

 private:
  void Missing(const char* key) {
    Fail(absl::InvalidArgumentError(absl::StrCat(what_, ": key ", key, " is missing")));
  }
  std::nullopt_t WrongType(const char* key, const char* expected) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        what_, ": ", key, " is ", ShownJson(*FindOrNull(key)), ", must be ", expected)));
    return std::nullopt;
  }

  const Json& object_;
  std::string what_;
  absl::Status& status_;
};

const Architecture* ReadArchitecture(ConfigObject& object, ModelConfig& config) {
  const std::string type = object.String("model_type").value_or("");
  const Architecture* const known = FindArchitectureOrNull(type);
  if (known == nullptr) {
    object.FailUnimplemented(absl::StrCat("model_type ", QuotedName(type), " is not supported; ",
                                          ArchitectureNames(/*in_gguf=*/false), " are"));
    return nullptr;
  }
  config.architecture = type;
  config.qkv_bias = known->qkv_bias;
  config.qk_norm = known->qk_norm;
  config.rope.theta = known->rope_theta;
  const Json* classes = object.FindOrNull("architectures");
  if (classes == nullptr ||
      (classes->is_array() && classes->size() == 1 && classes->front() == known->class_name)) {
    return known;
  }
  object.FailUnimplemented(absl::StrCat("architectures of a ", type, " model is ",
                                        ShownJson(*classes), ", not [\"", known->class_name,
                                        "\"]"));
  return nullptr;
}

// Keys of this family's relatives, and the value (besides null) that asks for nothing else. Not all
// readers know them all; what was meant is something that is not computed here.
void RefuseVariants(ConfigObject& object, const ModelConfig& config) {
  const std::pair<const char*, Json> variants[] = {
      {"attention_bias", false},
      {"mlp_bias", false},
      {"is_causal", true},
      {"logit_scale", 1},
      {"logits_scaling", 1},
      {"embedding_multiplier", 1},
      {"residual_multiplier", 1},
      {"attention_multiplier", nullptr},
      {"attn_logit_softcapping", nullptr},
      {"final_logit_softcapping", nullptr},
      {"clip_qkv", nullptr},
      {"num_local_experts", 0},
      {"no_rope_layers", Json::array()},
      {"per_layer_config", Json::object()},
  };
  for (const auto& [key, neutral] : variants) {
    const Json* value = object.FindOrNull(key);
    if (value == nullptr || *value == neutral) continue;
    if (config.qkv_bias && key == std::string_view("attention_bias")) continue;  // has its own
    if (!config.nope_layers.empty() && key == std::string_view("no_rope_layers")) continue;
    object.FailUnimplemented(
        absl::StrCat(key, " is ", ShownJson(*value), ", which is not supported"));
  }
  const std::string activation = object.String("hidden_act").value_or("silu");
  if (activation != "silu") {
    object.FailUnimplemented(
        absl::StrCat("hidden_act ", QuotedName(activation), " is not supported; silu is"));
  }
  if (const Json* quantization = object.FindOrNull("quantization_config")) {
    object.FailUnimplemented(absl::StrCat(
        "checkpoints with a quantization_config are not supported: ", ShownJson(*quantization)));
  }
}

// head_dim, or without it the hidden size shared out among the heads.
void ReadHeadDim(ConfigObject& object, const Architecture& known, ModelConfig& config) {
  std::optional<int> head_dim = object.Integer("head_dim", 1, Limits::kMaxHeadDim);
  if (known.head_dim > 0 && !head_dim.has_value() && !object.IsNull("head_dim")) {
    head_dim = known.head_dim;
  }
  if (head_dim.has_value() || config.num_heads == 0) {
    config.head_dim = head_dim.value_or(0);
    return;
  }
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads == 0) return;
  object.Fail(absl::InvalidArgumentError(absl::StrCat(
      "config.json: hidden_size ", config.hidden_size, " is not a multiple of num_attention_heads ",
      config.num_heads, ", and no head_dim is given")));
}

// How strongly YaRN sharpens the softmax at a stretch of `factor`.
double YarnMagnitude(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

void ReadYarn(ConfigObject& object, RopeConfig& rope) {
  // Zero and null both mean the default.
  const auto or_default = [&](const char* key, double fallback) {
    const double value = object.Real(key).value_or(0.0);
    return value == 0.0 ? fallback : value;
  };
  rope.scaling = RopeScaling::kYarn;
  rope.beta_fast = or_default("beta_fast", rope.beta_fast);
  rope.beta_slow = or_default("beta_slow", rope.beta_slow);
  const double mscale = object.Real("mscale").value_or(0.0);
  const double mscale_all_dim = object.Real("mscale_all_dim").value_or(0.0);
  const double computed =
      mscale != 0.0 && mscale_all_dim != 0.0
          ? YarnMagnitude(rope.factor, mscale) / YarnMagnitude(rope.factor, mscale_all_dim)
          : YarnMagnitude(rope.factor, 1.0);
  rope.attention_factor = object.Real("attention_factor").value_or(computed);
  // Unlike elsewhere null is false.
  rope.round_ramp = object.Boolean("truncate").value_or(!object.IsNull("truncate"));
}

// Beside the scaling or in it.
std::optional<int> OriginalContextTokens(ConfigObject& outer, ConfigObject& scaling) {
  constexpr char kKey[] = "original_max_position_embeddings";
  const std::optional<int> beside = outer.Integer(kKey, 1, Limits::kMaxContextTokens);
  const std::optional<int> inside = scaling.Integer(kKey, 1, Limits::kMaxContextTokens);
  if (beside && inside && *beside != *inside) {
    outer.Fail(absl::InvalidArgumentError(absl::StrCat("config.json: ", kKey, " is ", *beside,
                                                       ", in the rope scaling it is ", *inside)));
  }
  return beside.has_value() ? beside : inside;
}

void RefusePartialRotation(ConfigObject& object) {
  const double share = object.Real("partial_rotary_factor").value_or(1.0);
  if (share == 1.0) return;
  object.FailUnimplemented(absl::StrCat("partial_rotary_factor is ", share,
                                        "; only heads rotated as a whole are supported"));
}

void ReadScaling(ConfigObject& outer, ConfigObject& object, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  RefusePartialRotation(object);
  const std::string type =
      object.String("rope_type").value_or(object.String("type").value_or("default"));
  if (type == "default") return;
  if (type != "linear" && type != "llama3" && type != "yarn") {
    return object.FailUnimplemented(
        absl::StrCat("rope scaling ", QuotedName(type),
                     " is not supported; default, linear, llama3 and yarn are"));
  }
  rope.factor = object.RequiredReal("factor");
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return;
  }
  const std::optional<int> original = OriginalContextTokens(outer, object);
  rope.original_context_tokens = original.value_or(config.max_context_tokens);
  if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = object.RequiredReal("low_freq_factor");
    rope.high_freq_factor = object.RequiredReal("high_freq_factor");
  } else {
    ReadYarn(object, rope);
    if (original.has_value()) config.max_context_tokens = config.stretched_context_tokens();
  }
}

// `rope_parameters` holds theta too; the older `rope_scaling` stands beside `rope_theta`, and comes
// first where a file has both.
void ReadRope(ConfigObject& object, ModelConfig& config, absl::Status& status) {
  RopeConfig& rope = config.rope;
  rope.source_pairs = RopePairs::kHalfSplit;
  rope.dim = config.head_dim;
  rope.theta = object.Real("rope_theta").value_or(rope.theta);
  RefusePartialRotation(object);
  const char* key = "rope_scaling";
  const Json* scaling = object.FindOrNull(key);
  if (scaling == nullptr || *scaling == Json::object()) {
    key = "rope_parameters";
    scaling = object.FindOrNull(key);
  }
  if (scaling == nullptr) return;
  if (!scaling->is_object()) {
    return object.Fail(absl::InvalidArgumentError(
        absl::StrCat("config.json: ", key, " is ", ShownJson(*scaling), ", must be an object")));
  }
  ConfigObject parameters(*scaling, absl::StrCat("config.json: ", key), status);
  for (const auto& [name, value] : scaling->items()) {
    if (!value.is_object()) continue;
    return parameters.FailUnimplemented(
        absl::StrCat("parameters of one kind of layer are not supported: ", QuotedName(name)));
  }
  rope.theta = parameters.Real("rope_theta").value_or(rope.theta);
  ReadScaling(object, parameters, config);
}

void ReadKvHeads(ConfigObject& object, const Architecture& known, ModelConfig& config) {
  constexpr const char* kKey = "num_key_value_heads";
  // null, and for Llama an absent key, too, says "as many as there are heads".
  const bool as_heads = known.kv_heads == 0 || object.IsNull(kKey);
  config.num_kv_heads = object.Integer(kKey, 1, Limits::kMaxHeads)
                            .value_or(as_heads ? config.num_heads : known.kv_heads);
}

// Qwen's and SmolLM3's. layer_types, where a file has them, say which layers it is of
// (CheckLayerTypes); else Qwen's are those from max_window_layers on.
void RefuseWindowOfSomeLayers(ConfigObject& object, const ModelConfig& config) {
  if (config.architecture == "llama" || config.architecture == "mistral") return;
  constexpr int kDefaultLayers = 28;
  const int without =
      object.Integer("max_window_layers", 0, Limits::kMaxLayers).value_or(kDefaultLayers);
  const bool some = config.architecture == "smollm3" || without < config.num_layers;
  const bool used = object.Boolean("use_sliding_window").value_or(false) &&
                    object.FindOrNull("sliding_window") != nullptr;
  if (!used || !some || object.FindOrNull("layer_types") != nullptr) return;
  object.FailUnimplemented("use_sliding_window is true; a window of some layers is not supported");
}

void ReadSlidingWindow(ConfigObject& object, ModelConfig& config) {
  RefuseWindowOfSomeLayers(object, config);
  if (config.architecture != "mistral") return;  // Llama's code does not read the key
  constexpr int kDefaultWindow = 4096;
  // null says "none"; only an absent key takes the default.
  config.sliding_window_tokens =
      object.Integer("sliding_window", 1, Limits::kMaxContextTokens)
          .value_or(object.IsNull("sliding_window") ? 0 : kDefaultWindow);
}

// SmolLM3's layers without RoPE: by a list of 0 and 1 that is long enough, 0 for those, or each at
// the end of an interval.
void ReadNopeLayers(ConfigObject& object, const Architecture& known, ModelConfig& config) {
  if (!known.has_nope) return;
  constexpr int kDefaultInterval = 4;
  const Json* list = object.FindOrNull("no_rope_layers");
  const int interval =
      object.Integer("no_rope_layer_interval", 1, Limits::kMaxLayers).value_or(kDefaultInterval);
  const bool listed =
      list != nullptr && list->is_array() && list->size() >= static_cast<size_t>(config.num_layers);
  for (int i = 0; i < config.num_layers; ++i) {
    const Json rotates = listed ? (*list)[i] : Json((i + 1) % interval == 0 ? 0 : 1);
    if ((list != nullptr && !listed) || (rotates != 0 && rotates != 1)) {
      return object.Fail(absl::InvalidArgumentError(
          absl::StrCat("config.json: no_rope_layers is ", ShownJson(*list), ", must be a list of ",
                       config.num_layers, " of 0 and 1")));
    }
    config.nope_layers.push_back(rotates == 0);
  }
}

// All layers see what the model's architecture says: none is listed that sees something else.
void CheckLayerTypes(ConfigObject& object, const ModelConfig& config) {
  const Json* types = object.FindOrNull("layer_types");
  if (types == nullptr) return;
  const char* expected = config.sliding_window_tokens > 0 ? "sliding_attention" : "full_attention";
  if (types->is_array() && std::all_of(types->begin(), types->end(),
                                       [&](const Json& type) { return type == expected; })) {
    return;
  }
  object.FailUnimplemented(absl::StrCat("layer_types is ", ShownJson(*types),
                                        "; only layers that are all of \"", expected,
                                        "\" are supported for this model"));
}

}  // namespace

absl::StatusOr<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json) {
  const absl::StatusOr<Json> json = ParseJsonObject(config_json, "config.json");
  if (!json.ok()) return json.status();
  absl::Status status;
  ConfigObject object(*json, "config.json", status);
  ModelConfig config;
  const Architecture* const known = ReadArchitecture(object, config);
  if (known == nullptr) return status;
  config.num_layers = object.RequiredInteger("num_hidden_layers", 1, Limits::kMaxLayers);
  config.hidden_size = object.RequiredInteger("hidden_size", 1, Limits::kMaxHiddenSize);
  config.num_heads = object.RequiredInteger("num_attention_heads", 1, Limits::kMaxHeads);
  ReadKvHeads(object, *known, config);
  ReadHeadDim(object, *known, config);
  config.ffn_size = object.RequiredInteger("intermediate_size", 1, Limits::kMaxFfnSize);
  config.vocab_size = object.RequiredInteger("vocab_size", 1, Limits::kMaxVocabSize);
  config.max_context_tokens =
      object.RequiredInteger("max_position_embeddings", 1, Limits::kMaxContextTokens);
  config.rms_eps = object.Real("rms_norm_eps").value_or(1e-6);
  config.tied_embeddings = object.Boolean("tie_word_embeddings").value_or(known->tied);
  ReadRope(object, config, status);
  ReadSlidingWindow(object, config);
  CheckLayerTypes(object, config);
  ReadNopeLayers(object, *known, config);
  RefuseVariants(object, config);
  if (!status.ok()) return status;
  if (absl::Status invalid = config.Validate(); !invalid.ok()) return invalid;
  return config;
}

absl::StatusOr<std::vector<kvcache::TokenId>> ParseTokenIds(std::string_view json,
                                                            std::string_view file,
                                                            std::string_view key) {
  const absl::StatusOr<Json> object = ParseJsonObject(json, file);
  if (!object.ok()) return object.status();
  std::vector<kvcache::TokenId> ids;
  const auto found = object->find(std::string(key));
  if (found == object->end() || found->is_null()) return ids;
  const Json list = found->is_array() ? *found : Json::array({*found});
  if (list.size() > Limits::kMaxListedTokens) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(file), ": ", std::string(key),
                                                   " has ", list.size(), " token ids; at most ",
                                                   Limits::kMaxListedTokens, " are supported"));
  }
  for (const Json& element : list) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() >= Limits::kMaxVocabSize) {
      return absl::InvalidArgumentError(absl::StrCat(
          std::string(file), ": ", std::string(key), " holds ", ShownJson(element),
          ", must be a token id from 0 to ", Limits::kMaxVocabSize - 1, " or a list of them"));
    }
    ids.push_back(static_cast<kvcache::TokenId>(element.get<int32_t>()));
  }
  return ids;
}

}  // namespace refrain::engine
