#ifndef REFRAIN_ENGINE_TEXT_ADDED_TOKENS_H_
#define REFRAIN_ENGINE_TEXT_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/text/special_names.h"
#include "engine/text/vocabulary.h"

// The tokens that Hugging Face's files add to a vocabulary. Pure; any thread. INVALID_ARGUMENT
// names `file` and what is wrong in it.
namespace refrain::engine {

// What the text looks like in which tokens with `normalized` are found.
enum class NormalizedSpaces { kAsTheyAre, kMarked };

// Gives the token an id, at which there is no other one yet.
absl::Status SetToken(std::string_view file, std::optional<int64_t> id, const std::string& spelling,
                      TokenType type, TokenizerSpec* spec);

// The same of `{"content": "<s>", "lstrip": false, ...}`, of which it keeps what tells how the
// token is found.
absl::Status SetAddedToken(std::string_view file, std::optional<int64_t> id,
                           const nlohmann::json& token, NormalizedSpaces spaces,
                           TokenizerSpec* spec);

// What added_tokens_decoder of tokenizer_config.json says beside a tokenizer.json, as transformers
// takes it: a token's flags are those of the config, but that one stays special that is so in
// either. A token that the tokenizer.json does not add becomes an added one, with the id that the
// vocabulary has for it, else the next free one: of the ids in the config only the order counts.
// `vocab_size`: entries of the vocabulary itself.
absl::Status OverrideAddedTokens(const nlohmann::json& config, size_t vocab_size,
                                 NormalizedSpaces spaces, TokenizerSpec* spec);

// Where there is no tokenizer.json: added_tokens_decoder with its ids; of folders without it,
// added_tokens.json, where the roles of the two configs tell which tokens are special.
absl::Status ReadTokensBeside(const nlohmann::json& config, const nlohmann::json& added,
                              const SpecialNames& special, TokenizerSpec* spec);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_ADDED_TOKENS_H_
