#include "engine/text/added_tokens.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/text/json_members.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTokens = 4'000'000;
constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr char kDecoder[] = "added_tokens_decoder";

absl::Status Refuse(std::string_view file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(file), ": ", what));
}

// The first id that neither the vocabulary nor an added token has, as `tokenizers` counts them.
int64_t NextId(const TokenizerSpec& spec, size_t vocab_size) {
  const auto is_added = [](TokenType type) {
    return type == TokenType::kControl || type == TokenType::kUserDefined;
  };
  const auto last = std::find_if(spec.token_types.rbegin(), spec.token_types.rend(), is_added);
  return std::max(static_cast<int64_t>(vocab_size), spec.token_types.rend() - last);
}

}  // namespace

absl::Status SetToken(std::string_view file, std::optional<int64_t> id, const std::string& spelling,
                      TokenType type, TokenizerSpec* spec) {
  if (!id.has_value() || *id < 0 || *id >= static_cast<int64_t>(kMaxTokens)) {
    return Refuse(file, absl::StrCat("token '", spelling, "' has no id in [0, ", kMaxTokens, ")"));
  }
  const size_t index = static_cast<size_t>(*id);
  if (index >= spec->tokens.size()) {
    spec->tokens.resize(index + 1);
    spec->token_types.resize(index + 1, TokenType::kUnused);
  }
  std::string& slot = spec->tokens[index];
  if (!slot.empty() && slot != spelling) {
    return Refuse(file,
                  absl::StrCat("tokens '", slot, "' and '", spelling, "' both have id ", index));
  }
  slot = spelling;
  spec->token_types[index] = type;
  return absl::OkStatus();
}

absl::Status SetAddedToken(std::string_view file, std::optional<int64_t> id, const Json& token,
                           NormalizedSpaces spaces, TokenizerSpec* spec) {
  const std::string content = StringOf(token, "content");
  if (content.empty()) return Refuse(file, "an added token lacks its content");
  // Who trains with `tokenizers` lists bytes as special tokens, to have them: they are bytes still.
  const bool is_byte = id.has_value() && *id >= 0 &&
                       static_cast<size_t>(*id) < spec->tokens.size() &&
                       spec->token_types[static_cast<size_t>(*id)] == TokenType::kByte;
  if (is_byte) return SetToken(file, id, content, TokenType::kByte, spec);
  const bool is_special = BoolOf(token, "special", false);
  const AddedTokenRule rule = {.takes_space_before = BoolOf(token, "lstrip", false),
                               .takes_space_behind = BoolOf(token, "rstrip", false),
                               .single_word = BoolOf(token, "single_word", false),
                               .after_others = BoolOf(token, "normalized", !is_special)};
  // U+2581 is no white space, so that there only part of what is would be taken.
  const bool looks_around = rule.takes_space_before || rule.takes_space_behind || rule.single_word;
  if (looks_around && rule.after_others && spaces == NormalizedSpaces::kMarked) {
    return Refuse(file, absl::StrCat("added token '", content,
                                     "' has lstrip, rstrip or single_word together with "
                                     "normalized, which is not supported where the normalizer "
                                     "puts U+2581 for spaces"));
  }
  absl::Status status =
      SetToken(file, id, content, is_special ? TokenType::kControl : TokenType::kUserDefined, spec);
  if (!status.ok()) return status;
  const kvcache::TokenId token_id{static_cast<int32_t>(*id)};
  if (rule == AddedTokenRule()) {
    spec->added_token_rules.erase(token_id);
  } else {
    spec->added_token_rules[token_id] = rule;
  }
  return absl::OkStatus();
}

absl::Status OverrideAddedTokens(const Json& config, size_t vocab_size, NormalizedSpaces spaces,
                                 TokenizerSpec* spec) {
  const Json* decoder = FindOrNull(config, kDecoder);
  if (decoder == nullptr || !decoder->is_object() || decoder->empty()) return absl::OkStatus();
  std::map<int64_t, const Json*> tokens;              // by the id that the config has for them
  std::map<std::string, std::optional<int64_t>> ids;  // by spelling; none: not known yet
  for (const auto& [key, token] : decoder->items()) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(key, &id)) {
      return Refuse(kConfigFile, absl::StrCat(kDecoder, " has '", key, "', which is no id"));
    }
    tokens[id] = &token;
    ids[StringOf(token, "content")];
  }
  for (size_t i = spec->tokens.size(); i-- > 0;) {
    const auto wanted = ids.find(spec->tokens[i]);
    if (wanted != ids.end()) wanted->second = static_cast<int64_t>(i);
  }
  int64_t next_id = NextId(*spec, vocab_size);
  for (const auto& [place, token] : tokens) {
    std::optional<int64_t>& id = ids[StringOf(*token, "content")];
    if (!id.has_value()) id = next_id++;
    const auto index = static_cast<size_t>(*id);
    const bool was_special =
        index < spec->token_types.size() && spec->token_types[index] == TokenType::kControl;
    absl::Status status = SetAddedToken(kConfigFile, id, *token, spaces, spec);
    if (!status.ok()) return status;
    if (was_special) spec->token_types[index] = TokenType::kControl;
  }
  return absl::OkStatus();
}

absl::Status ReadTokensBeside(const Json& config, const Json& added, const SpecialNames& special,
                              TokenizerSpec* spec) {
  // Converted without `legacy`, such a model has its marks from a pre-tokenizer, after all tokens
  // are found.
  const NormalizedSpaces spaces =
      BoolOf(config, "legacy", true) ? NormalizedSpaces::kMarked : NormalizedSpaces::kAsTheyAre;
  const Json* decoder = FindOrNull(config, "added_tokens_decoder");
  if (decoder != nullptr && decoder->is_object()) {
    for (const auto& [key, token] : decoder->items()) {
      int64_t id = 0;
      absl::Status status = SetAddedToken(
          "tokenizer_config.json", absl::SimpleAtoi(key, &id) ? std::optional(id) : std::nullopt,
          token, spaces, spec);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  for (const auto& [text, id] : added.items()) {
    absl::Status status =
        SetToken("added_tokens.json", IntOf(id), text,
                 special.Contains(text) ? TokenType::kControl : TokenType::kUserDefined, spec);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace refrain::engine
