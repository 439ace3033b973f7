#ifndef REFRAIN_SERVER_OPENAI_TOKENIZER_INFO_H_
#define REFRAIN_SERVER_OPENAI_TOKENIZER_INFO_H_

#include <string>

#include "engine/engine.h"

namespace refrain::server::openai {

// What /tokenizer_info answers: of what vLLM tells there (the members of tokenizer_config.json with
// tokens as their spellings, the class, the chat template) that which the model's files of any form
// say. The four usual tokens are always there, null where the model has none; model_max_length is
// the context that is served. JSON. Pure.
std::string TokenizerInfoObject(const engine::ModelInfo& model);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOKENIZER_INFO_H_
