#include "engine/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

absl::Status CheckRange(std::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrCat("model ", std::string(field), " is ", value, ", must be ", low, " to ", high));
}

absl::Status FirstError(std::initializer_list<absl::Status> statuses) {
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Frequencies of a ramp that runs backwards mean different things to different readers; one without
// ends makes them no numbers.
absl::Status ValidateYarnRamp(const RopeConfig& rope) {
  const YarnRamp ramp = YarnRampOf(rope);
  if (ramp.begin >= 0.0 && ramp.begin <= ramp.end) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(absl::StrCat(
      "model YaRN has no ramp from ", ramp.begin, " to ", ramp.end, ": rope.beta_fast is ",
      rope.beta_fast, ", rope.beta_slow ", rope.beta_slow, ", rope.theta ", rope.theta,
      ", rope.original_context_tokens ", rope.original_context_tokens));
}

absl::Status ValidateScaling(const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return absl::OkStatus();
    case RopeScaling::kLinear:
      return CheckRange("rope.factor", rope.factor, 1e-3, 1e6);
    case RopeScaling::kLlama3:
      if (rope.low_freq_factor >= rope.high_freq_factor) {
        return absl::InvalidArgumentError(
            absl::StrCat("model rope.low_freq_factor is ", rope.low_freq_factor,
                         ", must be below rope.high_freq_factor ", rope.high_freq_factor));
      }
      return FirstError({CheckRange("rope.factor", rope.factor, 1.0, 1e6),
                         CheckRange("rope.low_freq_factor", rope.low_freq_factor, 1e-6, 1e6),
                         CheckRange("rope.high_freq_factor", rope.high_freq_factor, 1e-6, 1e6),
                         CheckRange("rope.original_context_tokens", rope.original_context_tokens, 1,
                                    ModelLimits::kMaxContextTokens)});
    case RopeScaling::kYarn:
      return FirstError({CheckRange("rope.factor", rope.factor, 1.0, 1e6),
                         CheckRange("rope.beta_fast", rope.beta_fast, 1e-6, 1e6),
                         CheckRange("rope.beta_slow", rope.beta_slow, 1e-6, 1e6),
                         CheckRange("rope.attention_factor", rope.attention_factor, 1e-3, 1e3),
                         CheckRange("rope.original_context_tokens", rope.original_context_tokens, 1,
                                    ModelLimits::kMaxContextTokens),
                         ValidateYarnRamp(rope)});
  }
  return absl::InvalidArgumentError("model rope.scaling is unknown");
}

}  // namespace

YarnRamp YarnRampOf(const RopeConfig& rope) {
  const auto dimension = [&](double turns) {
    return rope.dim * std::log(rope.original_context_tokens / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  const double begin = dimension(rope.beta_fast);
  const double end = dimension(rope.beta_slow);
  return {.begin = std::max(rope.round_ramp ? std::floor(begin) : begin, 0.0),
          .end = std::min(rope.round_ramp ? std::ceil(end) : end, rope.dim - 1.0)};
}

int ModelConfig::stretched_context_tokens() const {
  double tokens = max_context_tokens;
  if (rope.scaling == RopeScaling::kLinear) tokens *= std::max(rope.factor, 1.0);
  if (rope.scaling == RopeScaling::kYarn) {
    tokens = std::max(tokens, rope.original_context_tokens * rope.factor);
  }
  return static_cast<int>(std::min<double>(tokens, ModelLimits::kMaxContextTokens));
}

absl::Status ModelConfig::Validate() const {
  const absl::Status sizes = FirstError(
      {CheckRange("num_layers", num_layers, 1, ModelLimits::kMaxLayers),
       CheckRange("hidden_size", hidden_size, 1, ModelLimits::kMaxHiddenSize),
       CheckRange("num_heads", num_heads, 1, ModelLimits::kMaxHeads),
       CheckRange("num_kv_heads", num_kv_heads, 1, ModelLimits::kMaxHeads),
       CheckRange("head_dim", head_dim, ModelLimits::kMinHeadDim, ModelLimits::kMaxHeadDim),
       CheckRange("ffn_size", ffn_size, 1, ModelLimits::kMaxFfnSize),
       CheckRange("vocab_size", vocab_size, 1, ModelLimits::kMaxVocabSize),
       CheckRange("max_context_tokens", max_context_tokens, 1, ModelLimits::kMaxContextTokens),
       CheckRange("sliding_window_tokens", sliding_window_tokens, 0,
                  ModelLimits::kMaxContextTokens),
       CheckRange("rms_eps", rms_eps, 1e-12, 0.1), CheckRange("rope.theta", rope.theta, 1.0, 1e12),
       CheckRange("rope.dim", rope.dim, 2, head_dim)});
  if (!sizes.ok()) return sizes;
  if (head_dim % 2 != 0 || rope.dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model head_dim ", head_dim, " and rope.dim ", rope.dim, " must be even"));
  }
  if (num_heads % num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model num_heads ", num_heads, " is not a multiple of num_kv_heads ", num_kv_heads));
  }
  if ((qkv_bias || qk_norm) && rope.source_pairs != RopePairs::kHalfSplit) {
    return absl::InvalidArgumentError(
        "model with biases or norms of heads must store rotated pairs half-split");
  }
  if (!nope_layers.empty() && static_cast<int>(nope_layers.size()) != num_layers) {
    return absl::InvalidArgumentError(absl::StrCat("model nope_layers has ", nope_layers.size(),
                                                   " entries for ", num_layers, " layers"));
  }
  return ValidateScaling(rope);
}

}  // namespace refrain::engine
