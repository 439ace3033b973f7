#ifndef REFRAIN_ENGINE_MODEL_TENSOR_ROLE_H_
#define REFRAIN_ENGINE_MODEL_TENSOR_ROLE_H_

#include <cstddef>
#include <cstdint>

#include "engine/model/model_config.h"
#include "kernels/dtype.h"

namespace refrain::engine {

// What a weight is for, whatever its file calls it. Roles from kAttnNorm on exist once per layer.
enum class TensorRole : uint8_t {
  kTokenEmbedding,  // [vocab_size, hidden_size]
  kOutputNorm,      // [1, hidden_size]
  kOutput,          // [vocab_size, hidden_size]; absent when tied_embeddings
  kRopeFreqs,       // [1, rope.dim / 2], f32, optional: divides the RoPE frequencies
  kAttnNorm,        // [1, hidden_size]
  kAttnQ,           // [q_size, hidden_size], rows in the order of rope.source_pairs
  kAttnK,           // [kv_size, hidden_size], rows in the order of rope.source_pairs
  kAttnV,           // [kv_size, hidden_size]
  kAttnOutput,      // [hidden_size, q_size]
  kFfnNorm,         // [1, hidden_size]
  kFfnGate,         // [ffn_size, hidden_size]
  kFfnUp,           // [ffn_size, hidden_size]
  kFfnDown,         // [hidden_size, ffn_size]
  kAttnQBias,       // [1, q_size]; this and the next two where qkv_bias
  kAttnKBias,       // [1, kv_size]
  kAttnVBias,       // [1, kv_size]
  kAttnQNorm,       // [1, head_dim]; this and the next where qk_norm
  kAttnKNorm,       // [1, head_dim]
};

inline constexpr int kNumTensorRoles = 18;
inline constexpr int kNumGlobalRoles = 4;  // the roles before kAttnNorm

constexpr bool IsPerLayer(TensorRole role) { return role >= TensorRole::kAttnNorm; }

constexpr bool IsQkvBias(TensorRole role) {
  return role >= TensorRole::kAttnQBias && role <= TensorRole::kAttnVBias;
}
constexpr bool IsHeadNorm(TensorRole role) {
  return role == TensorRole::kAttnQNorm || role == TensorRole::kAttnKNorm;
}

// Norms, biases and frequency factors: one row, never quantised.
constexpr bool IsVector(TensorRole role) {
  return role == TensorRole::kOutputNorm || role == TensorRole::kRopeFreqs ||
         role == TensorRole::kAttnNorm || role == TensorRole::kFfnNorm || IsQkvBias(role) ||
         IsHeadNorm(role);
}

// Whether a sound model may have it with nothing but zeros: biases and frequency factors; and the
// two matrices whose zeros make a layer pass on what it is given, as layers are that were added to
// be trained later.
constexpr bool MayBeZero(TensorRole role) {
  return IsQkvBias(role) || role == TensorRole::kRopeFreqs || role == TensorRole::kAttnOutput ||
         role == TensorRole::kFfnDown;
}

// Whether a model of this shape has the tensor; of kRopeFreqs, whether it may.
constexpr bool Belongs(TensorRole role, const ModelConfig& config) {
  if (role == TensorRole::kOutput) return !config.tied_embeddings;
  if (IsQkvBias(role)) return config.qkv_bias;
  return !IsHeadNorm(role) || config.qk_norm;
}

struct TensorShape {
  int64_t rows = 0;
  int64_t cols = 0;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

constexpr TensorShape ShapeOf(TensorRole role, const ModelConfig& config) {
  switch (role) {
    case TensorRole::kTokenEmbedding:
    case TensorRole::kOutput:
      return {config.vocab_size, config.hidden_size};
    case TensorRole::kOutputNorm:
    case TensorRole::kAttnNorm:
    case TensorRole::kFfnNorm:
      return {1, config.hidden_size};
    case TensorRole::kRopeFreqs:
      return {1, config.rope.dim / 2};
    case TensorRole::kAttnQ:
      return {config.q_size(), config.hidden_size};
    case TensorRole::kAttnK:
    case TensorRole::kAttnV:
      return {config.kv_size(), config.hidden_size};
    case TensorRole::kAttnOutput:
      return {config.hidden_size, config.q_size()};
    case TensorRole::kFfnGate:
    case TensorRole::kFfnUp:
      return {config.ffn_size, config.hidden_size};
    case TensorRole::kFfnDown:
      return {config.hidden_size, config.ffn_size};
    case TensorRole::kAttnQBias:
      return {1, config.q_size()};
    case TensorRole::kAttnKBias:
    case TensorRole::kAttnVBias:
      return {1, config.kv_size()};
    case TensorRole::kAttnQNorm:
    case TensorRole::kAttnKNorm:
      return {1, config.head_dim};
  }
  return {};
}

// A weight as it lies in its file: row-major, rows of RowBytes(dtype, cols) bytes without padding,
// little-endian. `data` has no alignment: safetensors promises none.
struct WeightView {
  kernels::DType dtype = kernels::DType::kF32;
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_TENSOR_ROLE_H_
