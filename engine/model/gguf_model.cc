#include "engine/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/model/architecture.h"
#include "engine/model/gguf_metadata.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

using Limits = ModelLimits;

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

int SmallInt(std::optional<int64_t> value, int absent) {
  return value ? static_cast<int>(*value) : absent;
}

// YaRN's correction of the softmax temperature; attn_factor multiplies. Converters write two keys
// of config.json as yarn_attn_factor: attention_factor, which stands for the whole of it in
// transformers, and, where that is absent, attn_factor, which no reader follows. The second is seen
// where it would take the correction back (DeepSeek-R1-0528-Qwen3-8B); any other value is taken for
// the first. llama.cpp leaves both out.
double YarnAttentionFactor(GgufMetadata& metadata, const std::string& prefix, double factor) {
  const double by_factor = 0.1 * std::log(std::max(factor, 1.0)) + 1.0;
  const double whole = metadata.Real(prefix + "yarn_attn_factor").value_or(by_factor);
  const bool takes_back = std::abs(whole * by_factor - 1.0) < 1e-5;
  return (takes_back ? by_factor : whole) * metadata.Real(prefix + "attn_factor").value_or(1.0);
}

void ReadYarn(GgufMetadata& metadata, const std::string& prefix, RopeConfig& rope) {
  rope.beta_fast = metadata.Real(prefix + "yarn_beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = metadata.Real(prefix + "yarn_beta_slow").value_or(rope.beta_slow);
  rope.attention_factor = YarnAttentionFactor(metadata, prefix, rope.factor);
  if (metadata.Real(prefix + "yarn_ext_factor").value_or(1.0) != 1.0 ||
      metadata.Real(prefix + "yarn_log_multiplier").value_or(0.0) != 0.0) {
    metadata.Fail(absl::UnimplementedError(
        "GGUF: YaRN with an extrapolation factor or a log multiplier is not supported"));
  }
}

// As llama.cpp reads files of this type or none: by the factor of either key, 0 and absent being 1.
void ReadLinearScaling(GgufMetadata& metadata, const std::string& arch, RopeConfig& rope) {
  const std::string prefix = arch + ".rope.scaling.";
  rope.factor = metadata.Real(prefix + "factor").value_or(0.0);
  if (rope.factor == 0) rope.factor = metadata.Real(arch + ".rope.scale_linear").value_or(1.0);
  if (rope.factor == 0) rope.factor = 1.0;
  if (rope.factor != 1.0) rope.scaling = RopeScaling::kLinear;
  const double attention = metadata.Real(prefix + "attn_factor").value_or(1.0);
  if (attention != 1.0) {
    metadata.Fail(absl::UnimplementedError(absl::StrCat("GGUF: key ", prefix, "attn_factor is ",
                                                        attention, ", supported with yarn only")));
  }
}

void ReadRope(GgufMetadata& metadata, const std::string& arch, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = metadata.Real(arch + ".rope.freq_base").value_or(rope.theta);
  rope.dim = SmallInt(metadata.Integer(arch + ".rope.dimension_count", 2, Limits::kMaxHeadDim),
                      config.head_dim);
  if (rope.dim != config.head_dim) {
    metadata.Fail(absl::UnimplementedError(
        absl::StrCat("GGUF: rotating ", rope.dim, " of ", config.head_dim,
                     " elements of a head is not supported for this architecture")));
  }
  const std::string prefix = arch + ".rope.scaling.";
  const std::string_view type = metadata.String(prefix + "type").value_or("linear");
  if (type == "none") return;
  if (type == "linear") return ReadLinearScaling(metadata, arch, rope);
  rope.factor = metadata.RequiredReal(prefix + "factor");
  rope.original_context_tokens =
      SmallInt(metadata.Integer(prefix + "original_context_length", 1, Limits::kMaxContextTokens),
               config.max_context_tokens);
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    ReadYarn(metadata, prefix, rope);
    if (metadata.Has(prefix + "original_context_length")) {
      config.max_context_tokens = config.stretched_context_tokens();
    }
  } else {
    metadata.Fail(absl::UnimplementedError(absl::StrCat(
        "GGUF: rope scaling ", QuotedName(type), " is not supported; none, linear and yarn are")));
  }
}

const SourceTensor* FindTensorOrNull(const GgufFile& file, std::string_view name) {
  for (const SourceTensor& tensor : file.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// The embedding's rows; the vocabulary, where the file has one, must agree.
void ReadVocabSize(const GgufFile& file, GgufMetadata& metadata, ModelConfig& config) {
  const SourceTensor* embedding =
      FindTensorOrNull(file, TensorName(TensorNaming::kGguf, TensorRole::kTokenEmbedding, 0));
  if (embedding == nullptr || embedding->shape.size() != 2) {
    metadata.Fail(absl::InvalidArgumentError("GGUF: there is no matrix token_embd.weight"));
    return;
  }
  const int64_t rows = embedding->shape[0];
  if (rows > Limits::kMaxVocabSize) {
    metadata.Fail(absl::InvalidArgumentError(absl::StrCat(
        "GGUF: token_embd.weight has ", rows, " rows, at most ", Limits::kMaxVocabSize)));
    return;
  }
  const GgufValue* tokens = file.FindOrNull(kTokensKey);
  const auto expected = tokens != nullptr ? static_cast<int64_t>(tokens->count) : rows;
  if (expected != rows) {
    metadata.Fail(absl::InvalidArgumentError(
        absl::StrCat("GGUF: token_embd.weight has ", rows, " rows for ", expected, " tokens")));
    return;
  }
  config.vocab_size = static_cast<int>(rows);
}

// Options that change results and that this build does not run.
void RefuseVariants(GgufMetadata& metadata, const std::string& arch) {
  for (const std::string_view key : {".expert_count", ".attention.key_length_mla",
                                     ".nextn_predict_layers", ".attention.clamp_kqv"}) {
    const std::string name = absl::StrCat(arch, std::string(key));
    if (metadata.Real(name).value_or(0.0) != 0.0) {
      metadata.Fail(
          absl::UnimplementedError(absl::StrCat("GGUF: key ", name, " is not supported")));
    }
  }
  const std::string causal = arch + ".attention.causal";
  if (!metadata.Boolean(causal).value_or(true)) {
    metadata.Fail(absl::UnimplementedError(
        absl::StrCat("GGUF: key ", causal, " is false; only causal attention is supported")));
  }
}

std::optional<kvcache::TokenId> SpecialId(GgufMetadata& metadata, std::string_view name,
                                          std::optional<kvcache::TokenId> absent = std::nullopt) {
  const std::string key = absl::StrCat("tokenizer.ggml.", std::string(name), "_token_id");
  if (!metadata.Has(key)) return absent;
  // All bits set, read as -1 or 2^32 - 1, is how files say "none".
  const std::optional<int64_t> id = metadata.Integer(key, -1, UINT32_MAX);
  if (!id || *id == -1 || *id == UINT32_MAX) return std::nullopt;
  if (*id >= Limits::kMaxVocabSize) {
    metadata.Fail(absl::InvalidArgumentError(
        absl::StrCat("GGUF key ", key, " is ", *id, ", beyond every vocabulary")));
    return std::nullopt;
  }
  return static_cast<kvcache::TokenId>(*id);
}

std::vector<TokenType> TokenTypes(GgufMetadata& metadata) {
  std::vector<TokenType> types;
  const auto numbers = metadata.Integers("tokenizer.ggml.token_type", Limits::kMaxVocabSize);
  if (!numbers) return types;
  types.reserve(numbers->size());
  for (const int64_t number : *numbers) {
    if (number < 0 || number > static_cast<int64_t>(TokenType::kByte)) {
      metadata.Fail(absl::InvalidArgumentError(
          absl::StrCat("GGUF: token ", types.size(), " has the unknown type ", number)));
      return {};
    }
    types.push_back(number == 0 ? TokenType::kNormal : static_cast<TokenType>(number));
  }
  return types;
}

// Added tokens that their source does not call special are user-defined, in some files normal;
// those that end a turn are control tokens all the same, as llama.cpp has them: they stop, and are
// not in a user's text. A normal "</s>" is HTML's.
void MarkEndsOfTurns(TokenizerSpec& spec) {
  const size_t size = std::min(spec.tokens.size(), spec.token_types.size());
  for (size_t i = 0; i < size; ++i) {
    if (!NamesEndOfGeneration(spec.tokens[i])) continue;
    const bool html = spec.token_types[i] == TokenType::kNormal && spec.tokens[i] == "</s>";
    if (!html) spec.token_types[i] = TokenType::kControl;
  }
}

// Chat templates, and the tokens that they see beside bos and eos.
void ReadTemplates(GgufMetadata& metadata, TokenizerSpec& spec) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  constexpr std::string_view kNames = "tokenizer.chat_templates";
  constexpr uint64_t kMaxTemplates = 64;
  spec.chat_template = std::string(metadata.String(kKey).value_or(""));
  std::vector<std::string> names =
      metadata.Strings(kNames, kMaxTemplates).value_or(std::vector<std::string>());
  names.push_back("tool_use");
  for (const std::string& name : names) {
    const auto text = metadata.String(absl::StrCat(std::string(kKey), ".", name));
    if (text) spec.named_chat_templates.insert_or_assign(name, std::string(*text));
  }
  const std::pair<const char*, std::optional<kvcache::TokenId>> tokens[] = {
      {"unk_token", spec.unk},
      {"pad_token", spec.pad},
      // As the format spells it.
      {"sep_token", SpecialId(metadata, "seperator")},
      {"cls_token", SpecialId(metadata, "cls")},
      {"mask_token", SpecialId(metadata, "mask")}};
  for (const auto& [variable, id] : tokens) {
    if (!id || kvcache::ToIndex(*id) >= spec.tokens.size()) continue;
    spec.template_tokens.insert_or_assign(variable, spec.tokens[kvcache::ToIndex(*id)]);
  }
}

// Llama-3 scaling comes as factors that frequencies are divided by.
absl::Status CheckRopeFactors(const TensorTable& table, const ModelConfig& config) {
  if (!table.Has(TensorRole::kRopeFreqs, 0)) return absl::OkStatus();
  if (config.rope.scaling != RopeScaling::kNone) {
    return absl::UnimplementedError(
        "GGUF: rope_freqs.weight together with a rope.scaling.type is not supported");
  }
  const absl::StatusOr<WeightView> view = table.Get(TensorRole::kRopeFreqs, 0);
  if (!view.ok()) return view.status();
  for (int64_t i = 0; i < view->cols; ++i) {
    float factor = 0;
    std::memcpy(&factor, view->data + i * sizeof(factor), sizeof(factor));
    if (factor >= 1e-6f && factor <= 1e6f) continue;  // false for NaN
    return absl::InvalidArgumentError(
        absl::StrCat("GGUF: rope_freqs.weight has the factor ", factor, ", must be 1e-6 to 1e6"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  GgufMetadata metadata(file);
  ModelConfig config;
  const std::string arch(metadata.String("general.architecture").value_or(""));
  const Architecture* const known = FindArchitectureOrNull(arch);
  if (known == nullptr || !known->in_gguf) {
    if (!metadata.status().ok()) return metadata.status();
    return absl::UnimplementedError(absl::StrCat("GGUF: architecture ", QuotedName(arch),
                                                 " is not supported; ",
                                                 ArchitectureNames(/*in_gguf=*/true), " are"));
  }
  config.architecture = arch;
  config.qkv_bias = known->qkv_bias;
  config.qk_norm = known->qk_norm;
  config.rope.source_pairs = known->reordered ? RopePairs::kAdjacent : RopePairs::kHalfSplit;
  config.num_layers =
      static_cast<int>(metadata.RequiredInteger(arch + ".block_count", 1, Limits::kMaxLayers));
  if (known->has_nope) {
    // Files do not tell; every fourth layer, as in llama.cpp.
    for (int i = 0; i < config.num_layers; ++i) config.nope_layers.push_back(i % 4 == 3);
  }
  config.hidden_size = static_cast<int>(
      metadata.RequiredInteger(arch + ".embedding_length", 1, Limits::kMaxHiddenSize));
  config.num_heads = static_cast<int>(
      metadata.RequiredInteger(arch + ".attention.head_count", 1, Limits::kMaxHeads));
  config.num_kv_heads = SmallInt(
      metadata.Integer(arch + ".attention.head_count_kv", 1, Limits::kMaxHeads), config.num_heads);
  config.head_dim =
      SmallInt(metadata.Integer(arch + ".attention.key_length", 1, Limits::kMaxHeadDim),
               config.num_heads > 0 ? config.hidden_size / config.num_heads : 0);
  const int value_dim = SmallInt(
      metadata.Integer(arch + ".attention.value_length", 1, Limits::kMaxHeadDim), config.head_dim);
  if (value_dim != config.head_dim) {
    metadata.Fail(absl::UnimplementedError(absl::StrCat("GGUF: heads with keys of ",
                                                        config.head_dim, " and values of ",
                                                        value_dim, " elements are not supported")));
  }
  config.ffn_size = static_cast<int>(
      metadata.RequiredInteger(arch + ".feed_forward_length", 1, Limits::kMaxFfnSize));
  config.max_context_tokens = static_cast<int>(
      metadata.RequiredInteger(arch + ".context_length", 1, Limits::kMaxContextTokens));
  config.rms_eps = metadata.RequiredReal(arch + ".attention.layer_norm_rms_epsilon");
  config.sliding_window_tokens = SmallInt(
      metadata.Integer(arch + ".attention.sliding_window", 0, Limits::kMaxContextTokens), 0);
  if (config.sliding_window_tokens > 0 && arch != "llama") {
    metadata.Fail(absl::UnimplementedError(
        absl::StrCat("GGUF: key ", arch, ".attention.sliding_window is ",
                     config.sliding_window_tokens, "; a window of some layers is not supported")));
  }
  config.tied_embeddings =
      FindTensorOrNull(file, TensorName(TensorNaming::kGguf, TensorRole::kOutput, 0)) == nullptr;
  ReadRope(metadata, arch, config);
  ReadVocabSize(file, metadata, config);
  RefuseVariants(metadata, arch);
  if (!metadata.status().ok()) return metadata.status();
  if (absl::Status status = config.Validate(); !status.ok()) return status;
  return config;
}

absl::StatusOr<TokenizerSpec> ReadGgufTokenizer(const GgufFile& file) {
  GgufMetadata metadata(file);
  TokenizerSpec spec;
  const std::string model(metadata.String("tokenizer.ggml.model").value_or(""));
  if (!metadata.status().ok()) return metadata.status();
  if (model.empty() || model == "none" || model == "no_vocab") {
    return absl::NotFoundError("the GGUF file has no vocabulary");
  }
  if (model == "gpt2") {
    spec.kind = TokenizerKind::kBytePairEncoding;
  } else if (model == "llama") {
    spec.kind = TokenizerKind::kSentencePiece;
  } else {
    return absl::UnimplementedError(absl::StrCat("GGUF: tokenizer.ggml.model ", QuotedName(model),
                                                 " is not supported; gpt2 and llama are"));
  }
  spec.pre_tokenizer = std::string(metadata.String("tokenizer.ggml.pre").value_or(""));
  std::optional<std::vector<std::string>> tokens =
      metadata.Strings(kTokensKey, Limits::kMaxVocabSize);
  if (tokens) {
    spec.tokens = *std::move(tokens);
  } else {
    metadata.Fail(absl::InvalidArgumentError("GGUF key tokenizer.ggml.tokens is missing"));
  }
  spec.token_types = TokenTypes(metadata);
  MarkEndsOfTurns(spec);
  if (auto scores = metadata.Floats("tokenizer.ggml.scores", Limits::kMaxVocabSize)) {
    spec.scores = *std::move(scores);
  }
  // Pieces merge by scores where there are any, whatever a converter put beside them.
  const bool by_scores = spec.kind == TokenizerKind::kSentencePiece && !spec.scores.empty();
  auto merges = metadata.Strings(kMergesKey, 4 * Limits::kMaxVocabSize);
  if (merges && !by_scores) {
    spec.merges = *std::move(merges);
  } else if (!merges && spec.kind == TokenizerKind::kBytePairEncoding) {
    metadata.Fail(absl::InvalidArgumentError(
        absl::StrCat("GGUF key ", std::string(kMergesKey), " is missing")));
  }
  // Llama's own pieces, where an old file does not say.
  const bool pieces = spec.kind == TokenizerKind::kSentencePiece;
  const auto of_llama = [&](int32_t id) {
    return pieces ? std::optional(kvcache::TokenId{id}) : std::nullopt;
  };
  spec.bos = SpecialId(metadata, "bos", of_llama(1));
  spec.eos = SpecialId(metadata, "eos", of_llama(2));
  spec.unk = SpecialId(metadata, "unknown", of_llama(0));
  spec.pad = SpecialId(metadata, "padding");
  spec.eot = SpecialId(metadata, "eot");
  spec.eom = SpecialId(metadata, "eom");
  spec.add_bos = metadata.Boolean("tokenizer.ggml.add_bos_token");
  spec.add_eos = metadata.Boolean("tokenizer.ggml.add_eos_token");
  spec.add_space_prefix = metadata.Boolean("tokenizer.ggml.add_space_prefix");
  ReadTemplates(metadata, spec);
  if (!metadata.status().ok()) return metadata.status();
  MarkEndTokens(&spec);
  return spec;
}

absl::StatusOr<SamplingDefaults> ReadGgufSamplingDefaults(const GgufFile& file) {
  GgufMetadata metadata(file);
  // 0.6f is 0.6 to whoever wrote it.
  const auto decimal = [&](const char* key) -> std::optional<double> {
    const std::optional<double> value = metadata.Real(key);
    double shortest = 0;
    if (!value.has_value() ||
        !absl::SimpleAtod(absl::StrCat(static_cast<float>(*value)), &shortest)) {
      return value;
    }
    return shortest;
  };
  // There are no keys for the other penalties.
  const SamplingDefaults defaults = {
      .temperature = decimal("general.sampling.temp"),
      .top_p = decimal("general.sampling.top_p"),
      .min_p = decimal("general.sampling.min_p"),
      .repetition_penalty = decimal("general.sampling.penalty_repeat"),
      .top_k = metadata.Real("general.sampling.top_k")};
  if (!metadata.status().ok()) return metadata.status();
  return defaults;
}

absl::StatusOr<TensorTable> BindGgufTensors(const GgufFile& file, const ModelConfig& config) {
  absl::StatusOr<TensorTable> table =
      TensorTable::Bind(config, TensorNaming::kGguf, file.tensors());
  if (!table.ok()) return table;
  if (absl::Status status = CheckRopeFactors(*table, config); !status.ok()) return status;
  return table;
}

}  // namespace refrain::engine
