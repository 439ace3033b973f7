#ifndef REFRAIN_ENGINE_MODEL_HF_CONFIG_H_
#define REFRAIN_ENGINE_MODEL_HF_CONFIG_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "kvcache/types.h"

namespace refrain::engine {

// The text of a Hugging Face config.json as a validated configuration. Absent keys take the values
// that `transformers` gives them. What changes results and is not run (biases, other activations,
// dynamic RoPE, quantised checkpoints, other architectures) is refused by name. Pure; any thread.
absl::StatusOr<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json);

// `key` of a JSON object, written as one token id, a list of them, or null; empty when absent.
// InvalidArgument, with the name of the `file`, for anything else.
absl::StatusOr<std::vector<kvcache::TokenId>> ParseTokenIds(std::string_view json,
                                                            std::string_view file,
                                                            std::string_view key);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_HF_CONFIG_H_
