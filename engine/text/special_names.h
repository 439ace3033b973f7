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
// `{"content": "<s>", ...}`. As in transformers the map stands above the config, and is not looked
// at where that has added_tokens_decoder. Of a file that is not there the JSON is null; both
// outlive this. Pure; any thread.
class TokenNames {
 public:
  struct Name {
    std::string text;       // "": nothing has that role
    std::string_view file;  // that says so
  };

  TokenNames(const nlohmann::json& config, const nlohmann::json& map);

  Name Of(const char* role) const;
  // Whether a file says so, be it that nothing has the role.
  bool Tells(const char* role) const;
  const nlohmann::json& config() const { return config_; }
  // Null where it does not count.
  const nlohmann::json* map() const { return map_; }

 private:
  const nlohmann::json& config_;
  const nlohmann::json* map_;
};

// The first token of that spelling; none for "". Searches the whole vocabulary.
std::optional<kvcache::TokenId> FindToken(const TokenizerSpec& spec, std::string_view spelling);

// Sets the ids of the roles that are named, and what templates see of them. A bos or eos that the
// vocabulary lacks is wrong, not to be guessed at; a pad or unk is passed over: no text here is
// padded, and of an unknown token the vocabulary itself tells.
absl::Status ApplySpecialNames(const TokenNames& names, TokenizerSpec* spec);
// The part of it for templates alone.
void ApplyTemplateTokens(const TokenNames& names, TokenizerSpec* spec);

struct SpecialNames {
  std::set<std::string> roles;   // spellings that have a role
  std::set<std::string> listed;  // that are listed as special, without one

  bool Contains(const std::string& spelling) const {
    return roles.contains(spelling) || listed.contains(spelling);
  }
};
SpecialNames SpecialNamesOf(const TokenNames& names);

// Added tokens that have a role, or end a turn, become control tokens though their source does not
// call them special: else what a user writes could end his turn. One that is only listed stays what
// its source calls it, for it may be text of answers (<think>), which transformers 5 shows, too.
// Tokens of the vocabulary itself become control tokens where they have a role, are listed or end a
// turn, unless they have one byte (text is made of those) or are a "</s>" without a role (HTML's).
void MarkControlTokens(const SpecialNames& names, TokenizerSpec* spec);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SPECIAL_NAMES_H_
