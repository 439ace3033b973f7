#ifndef REFRAIN_ENGINE_MODEL_GGUF_MODEL_H_
#define REFRAIN_ENGINE_MODEL_GGUF_MODEL_H_

#include "absl/status/statusor.h"
#include "engine/model/gguf_file.h"
#include "engine/model/model_config.h"
#include "engine/model/sampling_defaults.h"
#include "engine/model/tensor_table.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// What GGUF's metadata keys mean for a model of the Llama family. Pure functions over a parsed
// file, any thread; errors name the key.

// A validated configuration. Unimplemented for another architecture, mixture of experts, or a
// RoPE form that is not run.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file);

// The file's tensors by role, for a configuration read from it.
absl::StatusOr<TensorTable> BindGgufTensors(const GgufFile& file, const ModelConfig& config);

// NotFound when the file carries no vocabulary.
absl::StatusOr<TokenizerSpec> ReadGgufTokenizer(const GgufFile& file);

// By the keys general.sampling.*.
absl::StatusOr<SamplingDefaults> ReadGgufSamplingDefaults(const GgufFile& file);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_GGUF_MODEL_H_
