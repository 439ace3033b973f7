#ifndef REFRAIN_ENGINE_TEXT_TOKENIZER_JSON_H_
#define REFRAIN_ENGINE_TEXT_TOKENIZER_JSON_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// The texts of the files of a Hugging Face folder; an absent file is empty.
struct HuggingFaceTokenizerFiles {
  std::string_view tokenizer_json;
  std::string_view tokenizer_config_json;
  std::string_view special_tokens_map_json;
  std::string_view added_tokens_json;  // older folders keep added tokens in a file of their own
  std::string_view generation_config_json;
  std::string_view chat_template_jinja;  // newer folders keep the template in a file of its own
  // and further ones in additional_chat_templates/NAME.jinja; by name.
  std::map<std::string, std::string_view> additional_chat_templates;
};

// Reads BPE tokenizers in the form of Hugging Face `tokenizers`: byte-level ones (GPT-2, SmolLM2,
// Llama 3, Qwen 2) and SentencePiece conversions with byte fallback (Llama 2, Mistral). What would
// change token ids and is not understood (another model type, normalizer, pre-tokenizer or
// post-processor) is refused by name, with three exceptions. What a
// post-processor puts behind a text (`sep`) is left out, for a prompt goes on. Byte tokens among
// the added ones stand for their bytes alone: a text that spells one stays text. Added tokens are
// found as they are spelled: of `normalized` only the order is obeyed (AddedTokenRule), with which
// Hugging Face looks for them in text that has its space marks already, and finds one that a mark
// belongs to (`Prepend`) behind spaces only, with the space (folders of Llama 1); together with
// `lstrip`, `rstrip` or `single_word` it is refused there. What tokenizer_config.json says of them
// stands above tokenizer.json (OverrideAddedTokens). A text begins as the post-processor says, but
// where the tokenizer's class obeys add_bos_token (tokenizer_class.h). Pure; any thread.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(const HuggingFaceTokenizerFiles& files);

// The same for a `tokenizer.json` alone: no chat template; bos and eos only where the
// post-processor names them.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json);

// What the files beside a SentencePiece `tokenizer.model` say, tokenizer.json and
// generation_config.json not among them: chat template, add_bos, the place of the space prefix and
// `tokens` with their types and special ids. Of tokens only those that they list; the others are
// empty. Tokens of kinds that would be found otherwise are refused as above.
absl::StatusOr<TokenizerSpec> ParseSentencePieceSidecars(const HuggingFaceTokenizerFiles& files);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_TOKENIZER_JSON_H_
