#include "tests/support/tiny_model.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/model/tensor_table.h"
#include "nlohmann/json.hpp"
#include "tests/support/gguf_writer.h"
#include "tests/support/quantize.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_vocabulary.h"

namespace refrain::testing {
namespace {

using engine::ModelConfig;
using engine::RopeConfig;
using engine::RopeScaling;
using engine::TensorNaming;
using engine::TensorRole;
using engine::TensorShape;
using kernels::DType;

// SplitMix64: the same numbers from every standard library.
class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : state_(seed) {}
  double Uniform() { return static_cast<double>((Next() >> 11) + 1) * 0x1p-53; }  // (0, 1]
  double Normal() {
    return std::sqrt(-2.0 * std::log(Uniform())) * std::cos(2.0 * std::numbers::pi * Uniform());
  }

 private:
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

struct Tensor {
  TensorRole role;
  int layer;
  DType dtype;
  TensorShape shape;
};

std::vector<Tensor> TensorsOf(const TinyModelOptions& options) {
  const ModelConfig& config = options.config;
  std::vector<Tensor> tensors;
  const auto add = [&](TensorRole role, int layer) {
    DType dtype = options.matrix_dtype;
    if (!IsPerLayer(role)) dtype = options.embedding_dtype.value_or(dtype);
    if (IsVector(role)) dtype = DType::kF32;
    tensors.push_back({role, layer, dtype, ShapeOf(role, config)});
  };
  add(TensorRole::kTokenEmbedding, 0);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (int role = engine::kNumGlobalRoles; role < engine::kNumTensorRoles; ++role) {
      if (Belongs(static_cast<TensorRole>(role), config)) {
        add(static_cast<TensorRole>(role), layer);
      }
    }
  }
  add(TensorRole::kOutputNorm, 0);
  if (!config.tied_embeddings) add(TensorRole::kOutput, 0);
  return tensors;
}

// Row r of an adjacent-pair file is this row of the half-split order.
int64_t HalfSplitRow(int64_t row, int head_dim) {
  const int64_t head = row / head_dim;
  const int64_t inside = row % head_dim;
  return head * head_dim + (inside % 2) * (head_dim / 2) + inside / 2;
}

std::string StoredBytes(const TinyModelOptions& options, const Tensor& tensor, bool adjacent) {
  const std::vector<float> values = TinyWeight(options, tensor.role, tensor.layer);
  const bool permute =
      adjacent && (tensor.role == TensorRole::kAttnQ || tensor.role == TensorRole::kAttnK);
  std::string bytes;
  for (int64_t row = 0; row < tensor.shape.rows; ++row) {
    const int64_t from = permute ? HalfSplitRow(row, options.config.head_dim) : row;
    bytes += QuantizeRow(tensor.dtype,
                         std::span(values).subspan(from * tensor.shape.cols, tensor.shape.cols));
  }
  return bytes;
}

// Converters call Mistral's models Llama's.
std::string GgufArchitecture(const ModelConfig& config) {
  return config.architecture == "mistral" ? "llama" : config.architecture;
}

void AddGgufRope(const std::string& arch, const RopeConfig& rope,
                 const std::optional<std::string>& scaling_type, GgufWriter& writer) {
  writer.AddFloat32(arch + ".rope.freq_base", static_cast<float>(rope.theta));
  writer.AddUint32(arch + ".rope.dimension_count", rope.dim);
  if (rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kLlama3) return;
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  const std::string type = scaling_type.value_or(yarn ? "yarn" : "linear");
  if (!type.empty()) writer.AddString(arch + ".rope.scaling.type", type);
  writer.AddFloat32(arch + ".rope.scaling.factor", static_cast<float>(rope.factor));
  if (!yarn) return;
  writer.AddUint32(arch + ".rope.scaling.original_context_length", rope.original_context_tokens);
  writer.AddFloat32(arch + ".rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
  writer.AddFloat32(arch + ".rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
  writer.AddFloat32(arch + ".rope.scaling.attn_factor",
                    static_cast<float>(rope.attention_factor / (0.1 * std::log(rope.factor) + 1)));
}

std::string TemplateOf(const TinyModelOptions& options) {
  return options.chat_template.value_or(kTinyChatTemplate);
}

void AddGgufVocabulary(const TinyModelOptions& options, GgufWriter& writer) {
  const int size = options.config.vocab_size;
  const TinyVocabulary vocabulary = MakeTinyVocabulary(size);
  std::vector<int32_t> types(size, 1);
  for (int id = 0; id < kTinyControlTokens; ++id) types[id] = 3;
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "gpt-2");
  writer.AddStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.AddInt32s("tokenizer.ggml.token_type", types);
  writer.AddStrings("tokenizer.ggml.merges", vocabulary.merges);
  writer.AddUint32("tokenizer.ggml.bos_token_id", kTinyEndOfText);
  writer.AddUint32("tokenizer.ggml.eos_token_id", kTinyImEnd);
  writer.AddBool("tokenizer.ggml.add_bos_token", false);
  writer.AddString("tokenizer.chat_template", TemplateOf(options));
}

nlohmann::json RopeScalingJson(const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return nullptr;
    case RopeScaling::kLinear:
      return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_context_tokens}};
    case RopeScaling::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", rope.factor},
              {"beta_fast", rope.beta_fast},
              {"beta_slow", rope.beta_slow},
              {"attention_factor", rope.attention_factor},
              {"original_max_position_embeddings", rope.original_context_tokens}};
  }
  return nullptr;
}

std::string ClassName(const ModelConfig& config) {
  if (config.architecture == "mistral") return "MistralForCausalLM";
  if (config.architecture == "qwen2") return "Qwen2ForCausalLM";
  if (config.architecture == "smollm3") return "SmolLM3ForCausalLM";
  return config.architecture == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
}

std::string ConfigJson(const ModelConfig& config) {
  nlohmann::json json = {
      {"architectures", {ClassName(config)}},
      {"model_type", config.architecture},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.ffn_size},
      {"num_hidden_layers", config.num_layers},
      {"num_attention_heads", config.num_heads},
      {"num_key_value_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.max_context_tokens},
      {"rms_norm_eps", config.rms_eps},
      {"rope_theta", config.rope.theta},
      {"rope_scaling", RopeScalingJson(config.rope)},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", config.tied_embeddings},
      {"bos_token_id", kTinyEndOfText},
      {"eos_token_id", kTinyImEnd},
  };
  if (config.architecture == "mistral") {
    json["sliding_window"] = config.sliding_window_tokens > 0
                                 ? nlohmann::json(config.sliding_window_tokens)
                                 : nlohmann::json(nullptr);
  }
  return json.dump(1);
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::string> SafetensorsName(DType dtype) {
  if (dtype == DType::kF32) return "F32";
  if (dtype == DType::kF16) return "F16";
  if (dtype == DType::kBF16) return "BF16";
  return absl::InvalidArgumentError(
      absl::StrCat("safetensors has no ", std::string(kernels::Traits(dtype).name)));
}

absl::Status WriteShards(const TinyModelOptions& options, const std::string& directory) {
  std::vector<SafetensorsWriter> shards(options.num_shards);
  nlohmann::json weight_map = nlohmann::json::object();
  const auto shard_name = [&](int index) {
    if (options.num_shards == 1) return std::string("model.safetensors");
    return absl::StrFormat("model-%05d-of-%05d.safetensors", index + 1, options.num_shards);
  };
  int next = 0;
  for (const Tensor& tensor : TensorsOf(options)) {
    const absl::StatusOr<std::string> dtype = SafetensorsName(tensor.dtype);
    if (!dtype.ok()) return dtype.status();
    const std::string name = TensorName(TensorNaming::kHuggingFace, tensor.role, tensor.layer);
    std::vector<int64_t> shape = {tensor.shape.rows, tensor.shape.cols};
    if (IsVector(tensor.role)) shape.erase(shape.begin());
    const int shard = next++ % options.num_shards;
    shards[shard].AddTensor(name, *dtype, shape, StoredBytes(options, tensor, /*adjacent=*/false));
    weight_map[name] = shard_name(shard);
  }
  absl::Status status;
  for (int i = 0; i < options.num_shards; ++i) {
    status.Update(WriteFile(absl::StrCat(directory, "/", shard_name(i)), shards[i].Build()));
  }
  if (options.num_shards > 1) {
    const nlohmann::json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", weight_map}};
    status.Update(WriteFile(directory + "/model.safetensors.index.json", index.dump()));
  }
  return status;
}

void AddGgufMetadata(const TinyModelOptions& options, GgufWriter& writer) {
  const ModelConfig& config = options.config;
  const std::string arch = GgufArchitecture(config);
  writer.AddString("general.architecture", arch);
  writer.AddString("general.name", "tiny");
  writer.AddUint32(arch + ".block_count", config.num_layers);
  writer.AddUint32(arch + ".context_length", config.max_context_tokens);
  writer.AddUint32(arch + ".embedding_length", config.hidden_size);
  writer.AddUint32(arch + ".feed_forward_length", config.ffn_size);
  writer.AddUint32(arch + ".attention.head_count", config.num_heads);
  writer.AddUint32(arch + ".attention.head_count_kv", config.num_kv_heads);
  writer.AddUint32(arch + ".attention.key_length", config.head_dim);
  writer.AddUint32(arch + ".attention.value_length", config.head_dim);
  writer.AddFloat32(arch + ".attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_eps));
  if (config.sliding_window_tokens > 0) {
    writer.AddUint32(arch + ".attention.sliding_window", config.sliding_window_tokens);
  }
  AddGgufRope(arch, config.rope, options.rope_scaling_type, writer);
  if (options.vocabulary) AddGgufVocabulary(options, writer);
}

void AddGgufTensor(const TinyModelOptions& options, const Tensor& tensor, GgufWriter& writer) {
  const std::string arch = GgufArchitecture(options.config);
  std::vector<uint64_t> extents = {static_cast<uint64_t>(tensor.shape.cols),
                                   static_cast<uint64_t>(tensor.shape.rows)};
  if (IsVector(tensor.role)) extents.pop_back();
  writer.AddTensor(TensorName(TensorNaming::kGguf, tensor.role, tensor.layer),
                   GgmlTypeOf(tensor.dtype), extents,
                   StoredBytes(options, tensor, /*adjacent=*/arch == "llama" || arch == "smollm3"));
}

void AddGgufRopeFactors(const TinyModelOptions& options, GgufWriter& writer) {
  if (options.rope_freq_factors.empty()) return;
  writer.AddTensor("rope_freqs.weight", GgmlTypeOf(DType::kF32), {options.rope_freq_factors.size()},
                   QuantizeRow(DType::kF32, options.rope_freq_factors));
}

}  // namespace

ModelConfig TinyConfig() {
  ModelConfig config;
  config.architecture = "llama";
  config.num_layers = 2;
  config.hidden_size = 256;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.ffn_size = 512;
  config.vocab_size = 384;
  config.max_context_tokens = 512;
  config.rms_eps = 1e-5;
  config.rope.dim = 64;
  config.tied_embeddings = true;
  return config;
}

std::vector<float> TinyWeight(const TinyModelOptions& options, TensorRole role, int layer) {
  const TensorShape shape = ShapeOf(role, options.config);
  RandomNumbers numbers(options.seed * 1000003 + static_cast<uint64_t>(role) * 4099 + layer);
  // Matrices keep the size of what passes through them; logits spread by about 3.
  const bool head = role == TensorRole::kTokenEmbedding || role == TensorRole::kOutput;
  const double deviation = (head ? 3.0 : 1.0) / std::sqrt(static_cast<double>(shape.cols));
  const bool enlarged =
      options.enlarged.has_value() && options.enlarged->first == role && layer == 1;
  const double factor = enlarged ? options.enlarged->second : 1.0;
  std::vector<float> values(shape.rows * shape.cols);
  for (float& value : values) {
    value = static_cast<float>(IsVector(role) ? 1.0 + 0.1 * numbers.Normal()
                                              : factor * deviation * numbers.Normal());
  }
  return values;
}

std::string BuildTinyGguf(const TinyModelOptions& options) {
  GgufWriter writer;
  AddGgufMetadata(options, writer);
  for (const Tensor& tensor : TensorsOf(options)) AddGgufTensor(options, tensor, writer);
  AddGgufRopeFactors(options, writer);
  return writer.Build();
}

std::vector<std::string> BuildTinyGgufParts(const TinyModelOptions& options, int num_parts) {
  const std::vector<Tensor> tensors = TensorsOf(options);
  const size_t own_factors = options.rope_freq_factors.empty() ? 0 : 1;
  const auto num_tensors = static_cast<int32_t>(tensors.size() + own_factors);
  std::vector<std::string> parts;
  for (int part = 0; part < num_parts; ++part) {
    GgufWriter writer;
    if (part == 0) AddGgufMetadata(options, writer);
    writer.AddUint16("split.no", static_cast<uint16_t>(part));
    writer.AddUint16("split.count", static_cast<uint16_t>(num_parts));
    writer.AddRaw("split.tensors.count", GgufWriter::kTypeInt32,
                  {reinterpret_cast<const char*>(&num_tensors), sizeof(num_tensors)});
    if (part > 0) {
      const size_t others = static_cast<size_t>(num_parts) - 1;
      const size_t begin = tensors.size() * (static_cast<size_t>(part) - 1) / others;
      const size_t end = tensors.size() * static_cast<size_t>(part) / others;
      for (size_t i = begin; i < end; ++i) AddGgufTensor(options, tensors[i], writer);
    }
    if (part == num_parts - 1) AddGgufRopeFactors(options, writer);
    parts.push_back(writer.Build());
  }
  return parts;
}

absl::StatusOr<std::string> WriteTinyGguf(const TinyModelOptions& options,
                                          const std::string& directory) {
  const std::string path = directory + "/tiny.gguf";
  absl::Status status = WriteFile(path, BuildTinyGguf(options));
  if (!status.ok()) return status;
  return path;
}

absl::StatusOr<std::string> WriteTinyFolder(const TinyModelOptions& options,
                                            const std::string& directory) {
  if (!options.rope_freq_factors.empty()) {
    return absl::InvalidArgumentError("frequency factors are a tensor of GGUF only");
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", directory));
  absl::Status status = WriteShards(options, directory);
  status.Update(WriteFile(directory + "/config.json", ConfigJson(options.config)));
  if (options.vocabulary) {
    const TinyVocabulary vocabulary = MakeTinyVocabulary(options.config.vocab_size);
    const nlohmann::json tokenizer_config = {{"bos_token", "<|endoftext|>"},
                                             {"eos_token", "<|im_end|>"},
                                             {"add_bos_token", false},
                                             {"chat_template", TemplateOf(options)}};
    status.Update(WriteFile(directory + "/tokenizer.json", TinyTokenizerJson(vocabulary)));
    status.Update(WriteFile(directory + "/tokenizer_config.json", tokenizer_config.dump()));
  }
  if (!status.ok()) return status;
  return directory;
}

uint32_t GgmlTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kF8E4M3:  // not of weights
      break;
  }
  return 0;
}

}  // namespace refrain::testing
