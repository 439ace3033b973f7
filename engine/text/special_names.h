#ifndef REFRAIN_ENGINE_TEXT_SPECIAL_NAMES_H_
#define REFRAIN_ENGINE_TEXT_SPECIAL_NAMES_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// What tokenizer_config.json and special_tokens_map.json call tokens: `"bos_token": "<s>"` or
// `{"content": "<s>", ...}`. Pure; any thread.

// "" where the config has none of that role.
std::string TokenTextOf(const nlohmann::json& config, const char* key);

// The first token of that spelling; none for "". Searches the whole vocabulary.
std::optional<kvcache::TokenId> FindToken(const TokenizerSpec& spec, std::string_view spelling);

// Sets the ids of the roles that the config names, and what templates see of them. A bos or eos
// that the vocabulary lacks is wrong, not to be guessed at; a pad or unk is passed over: no text
// here is padded, and of an unknown token the vocabulary itself tells.
absl::Status ApplySpecialNames(std::string_view file, const nlohmann::json& config,
                               TokenizerSpec* spec);
// The part of it for templates alone.
void ApplyTemplateTokens(const nlohmann::json& config, TokenizerSpec* spec);

struct SpecialNames {
  std::set<std::string> roles;   // spellings that a config has a role for
  std::set<std::string> listed;  // that it lists as special, without one

  bool Contains(const std::string& spelling) const {
    return roles.contains(spelling) || listed.contains(spelling);
  }
};
void AddSpecialNames(const nlohmann::json& config, SpecialNames* names);

// Added tokens that have a role, or end a turn, become control tokens though their source does not
// call them special: else what a user writes could end his turn. One that is only listed stays what
// its source calls it, for it may be text of answers (<think>), which transformers 5 shows, too.
// Tokens of the vocabulary itself become control tokens where they have a role, are listed or end a
// turn, unless they have one byte (text is made of those) or are a "</s>" without a role (HTML's).
void MarkControlTokens(const SpecialNames& names, TokenizerSpec* spec);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SPECIAL_NAMES_H_
