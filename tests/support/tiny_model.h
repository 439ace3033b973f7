#ifndef REFRAIN_TESTS_SUPPORT_TINY_MODEL_H_
#define REFRAIN_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_role.h"
#include "kernels/dtype.h"

namespace refrain::testing {

// Two layers whose rows suit every element type (multiples of 256): hidden 256, 4 heads of 64 over
// 2 KV heads, ffn 512, 384 tokens, 512 positions, tied embeddings.
engine::ModelConfig TinyConfig();

// A model of random weights. Weights depend on `seed` alone, not on format or element type (but for
// rounding), so one model can be written in several forms and compared.
struct TinyModelOptions {
  engine::ModelConfig config = TinyConfig();  // rope.source_pairs is set by the format
  uint64_t seed = 1;
  kernels::DType matrix_dtype = kernels::DType::kF32;
  std::optional<kernels::DType> embedding_dtype;  // embedding and output head; absent: as matrices
  // A byte-level BPE: ids 0 to 2 are <|endoftext|>, <|im_start|>, <|im_end|> (the last is eos),
  // then 256 bytes, then merged pairs up to vocab_size; and a chat template. Needs vocab_size 259
  // to 800. Without it the model has no tokenizer.
  bool vocabulary = true;
  std::optional<std::string> chat_template;  // in place of its own; "": none
  // What the matrices of one role in layer 1 are multiplied by: too much, and a type overflows.
  std::optional<std::pair<engine::TensorRole, float>> enlarged;
  std::vector<float> rope_freq_factors;  // GGUF: rope_freqs.weight; empty: none
  // GGUF: in place of what the configuration says; "": the key is absent.
  std::optional<std::string> rope_scaling_type;
  int num_shards = 1;  // Hugging Face: above 1 writes an index
};

// The logical weight, [rows, cols] row-major; q and k rows in half-split order.
std::vector<float> TinyWeight(const TinyModelOptions& options, engine::TensorRole role, int layer);

// The bytes of a GGUF file; of the architectures llama and mistral with q and k rows in
// adjacent-pair order.
std::string BuildTinyGguf(const TinyModelOptions& options);

// The same as files of `num_parts` parts: the first with what the file says and no tensor, the
// others with as many each as can be.
std::vector<std::string> BuildTinyGgufParts(const TinyModelOptions& options, int num_parts);

// Writes `directory`/tiny.gguf and returns its path.
absl::StatusOr<std::string> WriteTinyGguf(const TinyModelOptions& options,
                                          const std::string& directory);

// Writes config.json, safetensors and tokenizer files into `directory`, which is made if need be;
// returns it. InvalidArgument for quantised element types and rope_freq_factors.
absl::StatusOr<std::string> WriteTinyFolder(const TinyModelOptions& options,
                                            const std::string& directory);

// The number of an element type in GGUF files.
uint32_t GgmlTypeOf(kernels::DType dtype);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_TINY_MODEL_H_
