#include "tests/support/stories260k.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/tensor_table.h"
#include "tests/support/gguf_writer.h"

namespace refrain::testing {
namespace {

using engine::ModelConfig;
using engine::TensorNaming;
using engine::TensorRole;

constexpr uint32_t kGgmlF32 = 0;

template <typename T>
bool Take(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof(value)) return false;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

absl::StatusOr<ModelConfig> TakeConfig(std::string_view& bytes) {
  std::array<int32_t, 7> sizes = {};
  if (!Take(bytes, sizes)) return absl::InvalidArgumentError("llama2.c: no header");
  ModelConfig config;
  config.architecture = "llama";
  config.hidden_size = sizes[0];
  config.ffn_size = sizes[1];
  config.num_layers = sizes[2];
  config.num_heads = sizes[3];
  config.num_kv_heads = sizes[4];
  config.vocab_size = sizes[5];
  config.max_context_tokens = sizes[6];
  config.head_dim = sizes[3] > 0 ? sizes[0] / sizes[3] : 0;
  config.rms_eps = 1e-5;
  config.rope.dim = config.head_dim;
  config.tied_embeddings = true;  // a negative vocabulary size would say otherwise
  if (absl::Status status = config.Validate(); !status.ok()) return status;
  return config;
}

// The order of the file: each role for all layers, then the next.
constexpr std::array<TensorRole, 11> kFileOrder = {
    TensorRole::kTokenEmbedding, TensorRole::kAttnNorm,  TensorRole::kAttnQ,
    TensorRole::kAttnK,          TensorRole::kAttnV,     TensorRole::kAttnOutput,
    TensorRole::kFfnNorm,        TensorRole::kFfnGate,   TensorRole::kFfnDown,
    TensorRole::kFfnUp,          TensorRole::kOutputNorm};

absl::Status AddTensors(const ModelConfig& config, std::string_view bytes, GgufWriter& writer) {
  for (const TensorRole role : kFileOrder) {
    const engine::TensorShape shape = ShapeOf(role, config);
    const size_t size = static_cast<size_t>(shape.rows * shape.cols) * sizeof(float);
    for (int layer = 0; layer < (IsPerLayer(role) ? config.num_layers : 1); ++layer) {
      if (bytes.size() < size) return absl::InvalidArgumentError("llama2.c: the file is too short");
      std::vector<uint64_t> extents = {static_cast<uint64_t>(shape.cols),
                                       static_cast<uint64_t>(shape.rows)};
      if (IsVector(role)) extents.pop_back();
      writer.AddTensor(TensorName(TensorNaming::kGguf, role, layer), kGgmlF32, extents,
                       bytes.substr(0, size));
      bytes.remove_prefix(size);
    }
  }
  return absl::OkStatus();
}

// tok512.bin: int32 longest token, then per token float score, int32 length, bytes.
absl::Status AddVocabulary(int size, std::string_view bytes, GgufWriter& writer) {
  int32_t longest = 0;
  if (!Take(bytes, longest)) return absl::InvalidArgumentError("llama2.c: no tokenizer header");
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (int id = 0; id < size; ++id) {
    float score = 0;
    int32_t length = 0;
    if (!Take(bytes, score) || !Take(bytes, length) || length < 0 ||
        static_cast<size_t>(length) > bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("llama2.c: token ", id, " is cut off"));
    }
    std::string token;
    for (const char c : bytes.substr(0, length)) token += c == ' ' ? "\u2581" : std::string(1, c);
    bytes.remove_prefix(length);
    const bool is_byte = id >= 3 && id < 3 + 256;
    if (id == 0) token = "<unk>";
    if (id == 1) token = "<s>";
    if (id == 2) token = "</s>";
    if (is_byte) {
      constexpr char kHex[] = "0123456789ABCDEF";
      token = std::string("<0x") + kHex[(id - 3) / 16] + kHex[(id - 3) % 16] + ">";
    }
    tokens.push_back(token);
    scores.push_back(score);
    types.push_back(id == 0 ? 2 : id < 3 ? 3 : is_byte ? 6 : 1);
  }
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", tokens);
  writer.AddFloat32s("tokenizer.ggml.scores", scores);
  writer.AddInt32s("tokenizer.ggml.token_type", types);
  writer.AddUint32("tokenizer.ggml.bos_token_id", 1);
  writer.AddUint32("tokenizer.ggml.eos_token_id", 2);
  writer.AddUint32("tokenizer.ggml.unknown_token_id", 0);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ConvertLlama2cToGguf(std::string_view checkpoint,
                                                 std::string_view tokenizer) {
  const absl::StatusOr<ModelConfig> config = TakeConfig(checkpoint);
  if (!config.ok()) return config.status();
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddString("general.name", "stories260K");
  writer.AddUint32("llama.block_count", config->num_layers);
  writer.AddUint32("llama.context_length", config->max_context_tokens);
  writer.AddUint32("llama.embedding_length", config->hidden_size);
  writer.AddUint32("llama.feed_forward_length", config->ffn_size);
  writer.AddUint32("llama.attention.head_count", config->num_heads);
  writer.AddUint32("llama.attention.head_count_kv", config->num_kv_heads);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddFloat32("llama.rope.freq_base", 10000.0f);
  absl::Status status = AddVocabulary(config->vocab_size, tokenizer, writer);
  status.Update(AddTensors(*config, checkpoint, writer));
  if (!status.ok()) return status;
  return writer.Build();
}

}  // namespace refrain::testing
