#ifndef REFRAIN_ENGINE_MODEL_HF_TOKENIZER_H_
#define REFRAIN_ENGINE_MODEL_HF_TOKENIZER_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/weight_source.h"

namespace refrain::engine {

// Gathers what a Hugging Face folder says about its tokenizer: tokenizer.json, or else a
// SentencePiece tokenizer.model; with tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, generation_config.json, chat_template.jinja,
// additional_chat_templates/*.jinja and the special ids of config.json. All but one of the first
// two may be absent; NotFound when both are. Reads files, keeps none open; any thread.
absl::StatusOr<TokenizerSource> ReadHuggingFaceTokenizer(const std::string& folder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_HF_TOKENIZER_H_
