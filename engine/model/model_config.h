#ifndef REFRAIN_ENGINE_MODEL_MODEL_CONFIG_H_
#define REFRAIN_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace refrain::engine {

// How positions are stretched beyond the context a model was first trained for.
//   kNone    angle = position * theta^(-2i / dim), each frequency divided by the tensor kRopeFreqs
//            where the source has one (that is how GGUF carries Llama-3 scaling)
//   kLinear  position / factor
//   kLlama3  frequencies whose wavelength is beyond original_context_tokens / low_freq_factor are
//            divided by factor, those under original_context_tokens / high_freq_factor kept, those
//            between blended
//   kYarn    a ramp from kept to divided between beta_fast and beta_slow turns over
//            original_context_tokens (ramp ends rounded outwards to whole dimensions); cos and sin
//            are multiplied by attention_factor
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

// Which rows of a head's q and k RoPE rotates together, in the order the SOURCE stores them:
// (2i, 2i + 1) or (i, i + dim / 2). Kernels rotate half-split pairs; rows of an adjacent source
// are reordered when they are packed: half_split[p * dim / 2 + i] = adjacent[2 * i + p].
enum class RopePairs : uint8_t { kAdjacent, kHalfSplit };

struct RopeConfig {
  double theta = 10000.0;
  int dim = 0;  // elements of a head that are rotated, from the first; even
  RopePairs source_pairs = RopePairs::kHalfSplit;
  RopeScaling scaling = RopeScaling::kNone;
  // Read only where `scaling` says so.
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int original_context_tokens = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 1.0;
  bool round_ramp = true;
};

// Where YaRN begins and ends to divide frequencies (arXiv 2309.00071, section 3.2): dimensions that
// make beta_fast and beta_slow turns over the original context, counted in rotated pairs.
struct YarnRamp {
  double begin = 0.0;
  double end = 0.0;
};
YarnRamp YarnRampOf(const RopeConfig& rope);

// Far above every model there is. Small enough that no product of two fields of a valid
// ModelConfig overflows int64_t, and heads * head_dim fits an int.
struct ModelLimits {
  static constexpr int kMaxLayers = 1024;
  static constexpr int kMaxHeads = 4096;
  static constexpr int kMaxHiddenSize = 1 << 18;
  static constexpr int kMaxFfnSize = 1 << 20;
  static constexpr int kMaxVocabSize = 1 << 22;
  static constexpr size_t kMaxListedTokens = 1024;  // ids that one key of a file names
  static constexpr int kMaxContextTokens = 1 << 24;
  static constexpr int kMinHeadDim = 8;
  static constexpr int kMaxHeadDim = 256;
};

// The shape of a decoder of the Llama family: RMSNorm, RoPE, grouped-query attention, SwiGLU. Its
// relatives differ in what stands between a layer's product and RoPE. A plain value, filled by the
// GGUF and Hugging Face readers and named in every shape comment of the engine. It says nothing of
// how the weights are stored.
struct ModelConfig {
  std::string architecture;  // "llama", "mistral", "qwen2", "qwen3", "smollm3"
  int num_layers = 0;
  int hidden_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int ffn_size = 0;
  int vocab_size = 0;
  // What the model was made for; with YaRN whose original context is told, what that reaches. A
  // table over positions is filled as far as they are used: a file
  // may claim 2^24.
  int max_context_tokens = 0;
  double rms_eps = 0.0;
  RopeConfig rope;
  int sliding_window_tokens = 0;  // 0 = none; else token i sees token j iff i - j < window
  bool tied_embeddings = false;   // the output head is the token embedding
  bool qkv_bias = false;          // q, k and v have biases (Qwen2)
  bool qk_norm = false;           // each head of q and k is normalised before RoPE (Qwen3)
  std::vector<bool> nope_layers;  // those that rotate nothing (SmolLM3); empty: all rotate

  bool rotates(int layer) const { return nope_layers.empty() || !nope_layers[layer]; }
  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  // What scaled positions reach: with YaRN `factor` times the original context, with linear scaling
  // `factor` times max_context_tokens, or these themselves if they are more.
  int stretched_context_tokens() const;

  // InvalidArgument names the field, its value and the limit.
  absl::Status Validate() const;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_MODEL_CONFIG_H_
