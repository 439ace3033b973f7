#include "engine/text/special_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/text/json_members.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 7> kRoles = {"bos_token", "eos_token", "unk_token", "pad_token",
                                               "sep_token", "cls_token", "mask_token"};

std::string TokenTextOf(const Json& config, const char* key) {
  const Json* token = FindOrNull(config, key);
  if (token == nullptr) return "";
  return token->is_object() ? StringOf(*token, "content") : StringOf(config, key);
}

void AddListed(const Json& config, SpecialNames* names) {
  // The second is the newer name; there it may also be an object that gives each token a role.
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* others = FindOrNull(config, key);
    if (others == nullptr || !(others->is_array() || others->is_object())) continue;
    std::set<std::string>& to = others->is_object() ? names->roles : names->listed;
    for (const Json& other : *others) {
      to.insert(other.is_string() ? other.get<std::string>() : StringOf(other, "content"));
    }
  }
}

}  // namespace

TokenNames::TokenNames(const Json& config, const Json& map)
    : config_(config),
      map_(config.is_object() && config.contains("added_tokens_decoder") ? nullptr : &map) {}

TokenNames::Name TokenNames::Of(const char* role) const {
  if (map_ != nullptr && map_->is_object() && map_->contains(role)) {
    return {TokenTextOf(*map_, role), "special_tokens_map.json"};
  }
  return {TokenTextOf(config_, role), "tokenizer_config.json"};
}

bool TokenNames::Tells(const char* role) const {
  return (map_ != nullptr && map_->is_object() && map_->contains(role)) ||
         (config_.is_object() && config_.contains(role));
}

std::optional<kvcache::TokenId> FindToken(const TokenizerSpec& spec, std::string_view spelling) {
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), spelling);
  if (spelling.empty() || it == spec.tokens.end()) return std::nullopt;
  return kvcache::TokenId{static_cast<int32_t>(it - spec.tokens.begin())};
}

absl::Status ApplySpecialNames(const TokenNames& names, TokenizerSpec* spec) {
  struct Role {
    const char* key;
    std::optional<kvcache::TokenId>* id;
    bool may_lack;
  };
  const Role roles[] = {{"bos_token", &spec->bos, false},
                        {"eos_token", &spec->eos, false},
                        {"unk_token", &spec->unk, true},
                        {"pad_token", &spec->pad, true}};
  for (const Role& role : roles) {
    const TokenNames::Name name = names.Of(role.key);
    if (name.text.empty()) continue;
    const std::optional<kvcache::TokenId> id = FindToken(*spec, name.text);
    if (id.has_value()) {
      *role.id = id;
    } else if (!role.may_lack) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(name.file), ": ", role.key, " '",
                                                     name.text, "' is not in the vocabulary"));
    }
  }
  ApplyTemplateTokens(names, spec);
  return absl::OkStatus();
}

void ApplyTemplateTokens(const TokenNames& names, TokenizerSpec* spec) {
  for (const char* role : kRoles) {
    std::string text = names.Of(role).text;
    if (!text.empty()) spec->template_tokens.insert_or_assign(role, std::move(text));
  }
}

SpecialNames SpecialNamesOf(const TokenNames& names) {
  SpecialNames special;
  for (const char* role : kRoles) special.roles.insert(names.Of(role).text);
  AddListed(names.config(), &special);
  if (names.map() != nullptr) AddListed(*names.map(), &special);
  return special;
}

void MarkControlTokens(const SpecialNames& names, TokenizerSpec* spec) {
  for (size_t i = 0; i < spec->tokens.size(); ++i) {
    const std::string& text = spec->tokens[i];
    TokenType& type = spec->token_types[i];
    const bool added = type == TokenType::kUserDefined;
    const bool named = names.roles.contains(text) || (!added && names.listed.contains(text));
    if (text.empty() || !(named || NamesEndOfGeneration(text))) continue;
    const bool html = !named && text == "</s>";
    if (added || (type == TokenType::kNormal && text.size() > 1 && !html)) {
      type = TokenType::kControl;
    }
  }
}

}  // namespace refrain::engine
