#ifndef REFRAIN_ENGINE_MODEL_SAMPLING_DEFAULTS_H_
#define REFRAIN_ENGINE_MODEL_SAMPLING_DEFAULTS_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::engine {

// How a model's files ask for tokens to be chosen where a request does not say it, as the files
// have it: not checked yet (engine/own_sampling.h). Absent: they do not say it either.
struct SamplingDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> top_k;
  friend bool operator==(const SamplingDefaults&, const SamplingDefaults&) = default;
};

// Of a Hugging Face folder's generation_config.json. What else such files hold (do_sample,
// max_new_tokens, beams) is not used. InvalidArgument names the file and a key that is no number.
absl::StatusOr<SamplingDefaults> ParseGenerationConfig(std::string_view json);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_SAMPLING_DEFAULTS_H_
