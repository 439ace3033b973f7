#ifndef REFRAIN_ENGINE_MODEL_SAMPLING_DEFAULTS_H_
#define REFRAIN_ENGINE_MODEL_SAMPLING_DEFAULTS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::engine {

// How a model's files ask for tokens to be chosen where a request does not say it (SamplingParams).
// Absent: they do not say it either. What else such files hold (do_sample, max_new_tokens, beams)
// is not used, as in vLLM, but that there max_new_tokens is a limit.
struct SamplingDefaults {
  std::optional<double> temperature;         // 0 to 2
  std::optional<double> top_p;               // 0 to 1
  std::optional<double> min_p;               // 0 to 1
  std::optional<double> repetition_penalty;  // 0.01 to 100
  std::optional<int32_t> top_k;              // -1 and 0: all

  // InvalidArgument names the key, its value and the limits.
  absl::Status Validate() const;
  friend bool operator==(const SamplingDefaults&, const SamplingDefaults&) = default;
};

// Of a Hugging Face folder's generation_config.json. InvalidArgument names file and key.
absl::StatusOr<SamplingDefaults> ParseGenerationConfig(std::string_view json);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_SAMPLING_DEFAULTS_H_
