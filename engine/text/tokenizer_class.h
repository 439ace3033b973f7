#ifndef REFRAIN_ENGINE_TEXT_TOKENIZER_CLASS_H_
#define REFRAIN_ENGINE_TEXT_TOKENIZER_CLASS_H_

#include <string_view>

namespace refrain::engine {

// What transformers' classes of tokenizers do by themselves. By the name of tokenizer_config.json,
// with or without "Fast"; "" where it names none. Pure; any thread.

// Whether `add_bos_token` has the last word on what a text begins with, above the post-processor of
// tokenizer.json. As in transformers 4; in 5 it has no word anywhere.
bool ObeysAddBosToken(std::string_view tokenizer_class);

// Whether there is a `bos_token` or `eos_token` (`role`) though no file names one.
bool HasTokenOfItsOwn(std::string_view tokenizer_class, std::string_view role);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_TOKENIZER_CLASS_H_
