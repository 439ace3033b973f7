#ifndef REFRAIN_ENGINE_TEXT_BPE_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_BPE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// Byte-level BPE (GPT-2, SmolLM2, Llama 3, Qwen 2). `spec.kind` is kBytePairEncoding;
// the pre-tokenizer is its own or what is assumed for it. See CreateTokenizer for what is refused.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(const TokenizerSpec& spec,
                                                              std::string_view pre_tokenizer_name);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_BPE_TOKENIZER_H_
