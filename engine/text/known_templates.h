#ifndef REFRAIN_ENGINE_TEXT_KNOWN_TEMPLATES_H_
#define REFRAIN_ENGINE_TEXT_KNOWN_TEMPLATES_H_

#include <optional>
#include <string>
#include <string_view>

namespace refrain::engine {

// The Jinja source of a chat template that a GGUF file only names: `chatml`, and those that
// llama.cpp's converter writes for Mistral's own files (`mistral-v1`, `mistral-v3`,
// `mistral-v3-tekken`, `mistral-v7`, `mistral-v7-tekken`). It renders as llama.cpp's templates of
// these names (src/llama-chat.cpp), without the bos that the tokenizer adds there. Pure.
std::optional<std::string> KnownChatTemplate(std::string_view name);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_KNOWN_TEMPLATES_H_
