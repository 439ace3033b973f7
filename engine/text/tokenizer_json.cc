#include "engine/text/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/added_tokens.h"
#include "engine/text/bounded_json.h"
#include "engine/text/chat_template_texts.h"
#include "engine/text/json_members.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/space_mark.h"
#include "engine/text/special_names.h"
#include "engine/text/tokenizer_class.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;

constexpr char kDigitPattern[] = "\\p{N}";
constexpr char kDigitRunPattern[] = "\\p{N}+";
constexpr char kByteLevelPattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

absl::Status Refuse(std::string_view file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(file), ": ", what));
}

absl::Status Refuse(const std::string& what) { return Refuse("tokenizer.json", what); }

absl::StatusOr<Json> ParseFile(std::string_view name, std::string_view text) {
  if (text.empty()) return Json();
  return ParseBoundedJson(name, text);
}

// Each is searched for in the whole vocabulary.
constexpr int kMaxTemplateTokens = 64;
constexpr size_t kMaxEndTokens = 1024;

// Fills one spec from tokenizer.json, part by part.
class TokenizerJsonReader {
 public:
  // `config`: tokenizer_config.json, for its added tokens.
  TokenizerJsonReader(const Json& root, const Json& config) : root_(root), config_(config) {}

  absl::StatusOr<TokenizerSpec> Read() {
    const Json* model = FindOrNull(root_, "model");
    if (model == nullptr) return Refuse("has no model");
    const std::string type = StringOf(*model, "type");
    // Files of older library versions leave the type out.
    if (type != "BPE" && !(type.empty() && FindOrNull(*model, "merges") != nullptr)) {
      return Refuse(absl::StrCat("model type '", type, "' is not supported; only BPE is"));
    }
    for (const auto& step :
         {&TokenizerJsonReader::ReadNormalizer, &TokenizerJsonReader::ReadPreTokenizer,
          &TokenizerJsonReader::ReadModel, &TokenizerJsonReader::ReadAddedTokens,
          &TokenizerJsonReader::ReadTokensOfConfig, &TokenizerJsonReader::ReadPostProcessor}) {
      absl::Status status = (this->*step)();
      if (!status.ok()) return status;
    }
    return std::move(spec_);
  }

 private:
  absl::Status ReadNormalizer() {
    const Json* normalizer = FindOrNull(root_, "normalizer");
    spec_.add_space_prefix = false;
    return normalizer == nullptr ? absl::OkStatus() : ReadOneNormalizer(*normalizer, 0);
  }

  absl::Status ReadOneNormalizer(const Json& normalizer, int depth) {
    const std::string type = StringOf(normalizer, "type");
    if (type == "Sequence" && depth == 0) {
      const Json* parts = FindOrNull(normalizer, "normalizers");
      if (parts == nullptr || !parts->is_array()) return Refuse("normalizer Sequence is no list");
      for (const Json& part : *parts) {
        absl::Status status = ReadOneNormalizer(part, depth + 1);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    }
    if (type == "Prepend" && StringOf(normalizer, "prepend") == kSpaceMark) {
      spec_.kind = TokenizerKind::kSentencePiece;
      spec_.add_space_prefix = true;
      normalized_spaces_ = NormalizedSpaces::kMarked;
      return absl::OkStatus();
    }
    const Json* pattern = FindOrNull(normalizer, "pattern");
    if (type == "Replace" && pattern != nullptr && StringOf(*pattern, "String") == " " &&
        StringOf(normalizer, "content") == kSpaceMark) {
      spec_.kind = TokenizerKind::kSentencePiece;
      normalized_spaces_ = NormalizedSpaces::kMarked;
      return absl::OkStatus();
    }
    if (type == "NFC") {
      spec_.composes_text = true;
      return absl::OkStatus();
    }
    return Refuse(absl::StrCat("normalizer '", type, "' is not supported"));
  }

  absl::Status ReadPreTokenizer() {
    const Json* pre = FindOrNull(root_, "pre_tokenizer");
    if (pre != nullptr) {
      absl::Status status = ReadOnePreTokenizer(*pre, 0);
      if (!status.ok()) return status;
    }
    if (spec_.kind == TokenizerKind::kSentencePiece) {
      if (!spec_.split_patterns.empty() || is_byte_level_) {
        return Refuse("space marks and a byte-level or pattern pre-tokenizer do not go together");
      }
      return absl::OkStatus();
    }
    if (!is_byte_level_) return Refuse("pre_tokenizer has no ByteLevel; only that is supported");
    NamePatterns();
    return absl::OkStatus();
  }

  absl::Status ReadOnePreTokenizer(const Json& pre, int depth) {
    const std::string type = StringOf(pre, "type");
    if (type == "Sequence" && depth == 0) {
      const Json* parts = FindOrNull(pre, "pretokenizers");
      if (parts == nullptr || !parts->is_array())
        return Refuse("pre_tokenizer Sequence is no list");
      if (parts->size() > PreTokenizer::kMaxPatterns) {
        return Refuse(absl::StrCat("pre_tokenizer Sequence has ", parts->size(), " steps; at most ",
                                   PreTokenizer::kMaxPatterns, " are supported"));
      }
      for (const Json& part : *parts) {
        absl::Status status = ReadOnePreTokenizer(part, depth + 1);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    }
    if (is_byte_level_) return Refuse("pre_tokenizer has a step after ByteLevel");
    if (type == "ByteLevel") {
      if (BoolOf(pre, "add_prefix_space", true)) {
        return Refuse("pre_tokenizer ByteLevel with add_prefix_space is not supported");
      }
      is_byte_level_ = true;
      if (BoolOf(pre, "use_regex", true)) spec_.split_patterns.push_back(kByteLevelPattern);
      return absl::OkStatus();
    }
    if (type == "Digits") {
      spec_.split_patterns.push_back(BoolOf(pre, "individual_digits", false) ? kDigitPattern
                                                                             : kDigitRunPattern);
      return absl::OkStatus();
    }
    if (type == "Split") return ReadSplit(pre);
    if (type == "Metaspace") return ReadMetaspace(pre);
    return Refuse(absl::StrCat("pre_tokenizer '", type, "' is not supported"));
  }

  absl::Status ReadSplit(const Json& pre) {
    const Json* pattern = FindOrNull(pre, "pattern");
    const std::string regex = pattern == nullptr ? "" : StringOf(*pattern, "Regex");
    if (regex.empty()) return Refuse("pre_tokenizer Split without a Regex is not supported");
    if (StringOf(pre, "behavior") != "Isolated" || BoolOf(pre, "invert", false)) {
      return Refuse("pre_tokenizer Split is supported with behavior Isolated only");
    }
    spec_.split_patterns.push_back(regex);
    return absl::OkStatus();
  }

  absl::Status ReadMetaspace(const Json& pre) {
    if (StringOf(pre, "replacement") != kSpaceMark || BoolOf(pre, "split", true)) {
      return Refuse("pre_tokenizer Metaspace is supported with U+2581 and split false only");
    }
    const std::string scheme = StringOf(pre, "prepend_scheme");
    if (scheme != "first" && scheme != "always" && scheme != "never") {
      return Refuse(absl::StrCat("pre_tokenizer Metaspace with prepend_scheme '", scheme,
                                 "' is not supported"));
    }
    spec_.kind = TokenizerKind::kSentencePiece;
    spec_.add_space_prefix = scheme != "never";
    spec_.space_prefix_at_start_only = scheme == "first";
    spec_.space_prefix_unless_present = true;
    return absl::OkStatus();
  }

  // Patterns of a known model get its name, which has the faster and stricter spelling.
  void NamePatterns() {
    std::vector<std::string>& patterns = spec_.split_patterns;
    std::string_view name;
    if (patterns.size() == 1) name = PreTokenizer::NameOfPublishedPattern(patterns[0]);
    if (patterns == std::vector<std::string>{kDigitPattern, kByteLevelPattern}) name = "smollm";
    if (name.empty() && !patterns.empty()) {
      spec_.pre_tokenizer = "custom";
      return;
    }
    // ByteLevel without a pattern of its own leaves the text in one piece.
    if (patterns.empty()) {
      spec_.pre_tokenizer = "custom";
      patterns.push_back("(?s).+");
      return;
    }
    spec_.pre_tokenizer = std::string(name);
    patterns.clear();
  }

  absl::Status ReadModel() {
    const Json& model = root_["model"];
    const Json* vocab = FindOrNull(model, "vocab");
    const Json* merges = FindOrNull(model, "merges");
    if (vocab == nullptr || !vocab->is_object()) return Refuse("model.vocab is not an object");
    if (merges == nullptr || !merges->is_array()) return Refuse("model.merges is not a list");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!StringOf(model, key).empty())
        return Refuse(absl::StrCat("model.", key, " is not supported"));
    }
    if (const Json* dropout = FindOrNull(model, "dropout"); dropout != nullptr && *dropout != 0) {
      return Refuse(absl::StrCat("model.dropout ", ShownInMessage(*dropout), " is not supported"));
    }
    spec_.fuses_unknown = BoolOf(model, "fuse_unk", false);
    const bool byte_fallback = BoolOf(model, "byte_fallback", false);
    for (const auto& [spelling, id] : vocab->items()) {
      const bool is_byte = byte_fallback && spelling.size() == 6 && spelling.starts_with("<0x");
      absl::Status status = SetToken("tokenizer.json", IntOf(id), spelling,
                                     is_byte ? TokenType::kByte : TokenType::kNormal, &spec_);
      if (!status.ok()) return status;
    }
    spec_.merges.reserve(merges->size());
    for (const Json& merge : *merges) {
      if (merge.is_string()) {
        spec_.merges.push_back(merge.get<std::string>());
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        spec_.merges.push_back(
            absl::StrCat(merge[0].get<std::string>(), " ", merge[1].get<std::string>()));
      } else {
        return Refuse(absl::StrCat("model.merges[", spec_.merges.size(), "] is not two tokens"));
      }
    }
    spec_.ignore_merges = BoolOf(model, "ignore_merges", false);
    const std::string unknown = StringOf(model, "unk_token");
    if (!unknown.empty()) {
      if (spec_.kind == TokenizerKind::kBytePairEncoding && !HasAllBytes(*vocab)) {
        return Refuse("model.unk_token together with bytes that have no token is not supported");
      }
      spec_.unk = FindToken(spec_, unknown);
    }
    return absl::OkStatus();
  }

  // Whether unk can never be produced: the byte-level alphabet is complete.
  static bool HasAllBytes(const Json& vocab) {
    size_t single_characters = 0;
    for (const auto& [spelling, id] : vocab.items()) {
      const size_t continuation = std::count_if(spelling.begin(), spelling.end(), [](char c) {
        return (static_cast<uint8_t>(c) & 0xC0) == 0x80;
      });
      if (spelling.size() - continuation == 1) ++single_characters;
    }
    return single_characters >= 256;
  }

  absl::Status ReadAddedTokens() {
    const Json* added = FindOrNull(root_, "added_tokens");
    if (added == nullptr) return absl::OkStatus();
    if (!added->is_array()) return Refuse("added_tokens is not a list");
    for (const Json& token : *added) {
      const Json* id = FindOrNull(token, "id");
      absl::Status status =
          SetAddedToken("tokenizer.json", id == nullptr ? std::nullopt : IntOf(*id), token,
                        normalized_spaces_, &spec_);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadTokensOfConfig() {
    const size_t vocab_size = root_["model"]["vocab"].size();
    return OverrideAddedTokens(config_, vocab_size, normalized_spaces_, &spec_);
  }

  absl::Status ReadPostProcessor() {
    const Json* post = FindOrNull(root_, "post_processor");
    spec_.add_bos = false;
    spec_.add_eos = false;
    if (post == nullptr) return absl::OkStatus();
    return ReadOnePostProcessor(*post, 0);
  }

  absl::Status ReadOnePostProcessor(const Json& post, int depth) {
    const std::string type = StringOf(post, "type");
    if (type == "Sequence" && depth == 0) {
      const Json* parts = FindOrNull(post, "processors");
      if (parts == nullptr || !parts->is_array()) {
        return Refuse("post_processor Sequence is no list");
      }
      for (const Json& part : *parts) {
        absl::Status status = ReadOnePostProcessor(part, depth + 1);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    }
    if (type == "ByteLevel") return absl::OkStatus();  // of offsets alone
    if (type == "TemplateProcessing") return ReadTemplate(post);
    if (type == "BertProcessing" || type == "RobertaProcessing") return ReadPair(post, type);
    return Refuse(absl::StrCat("post_processor '", type, "' is not supported"));
  }

  // TemplateProcessing: what stands before the text is bos, what stands behind is eos.
  absl::Status ReadTemplate(const Json& post) {
    const Json* single = FindOrNull(post, "single");
    if (single == nullptr || !single->is_array()) return absl::OkStatus();
    bool before_text = true;
    for (const Json& part : *single) {
      if (FindOrNull(part, "Sequence") != nullptr) before_text = false;
      const Json* special = FindOrNull(part, "SpecialToken");
      if (special == nullptr) continue;
      if (++template_tokens_ > kMaxTemplateTokens) {
        return Refuse(absl::StrCat("the post_processor adds more than ", kMaxTemplateTokens,
                                   " special tokens"));
      }
      const std::optional<kvcache::TokenId> id = FindToken(spec_, StringOf(*special, "id"));
      if (!id.has_value()) continue;
      if (before_text && spec_.add_bos == true) {
        return Refuse("the post_processor puts more than one token before the text");
      }
      (before_text ? spec_.bos : spec_.eos) = id;
      (before_text ? spec_.add_bos : spec_.add_eos) = true;
    }
    return absl::OkStatus();
  }

  // `"cls": ["<s>", 1]` stands before the text, `"sep"` behind it.
  absl::Status ReadPair(const Json& post, const std::string& type) {
    for (const char* key : {"cls", "sep"}) {
      const Json* token = FindOrNull(post, key);
      const std::optional<int64_t> id = token != nullptr && token->is_array() && token->size() == 2
                                            ? IntOf((*token)[1])
                                            : std::nullopt;
      if (!id.has_value() || *id < 0 || *id >= static_cast<int64_t>(spec_.tokens.size())) {
        return Refuse(absl::StrCat("post_processor ", type, ": ", key,
                                   " is not a token and its id in the vocabulary"));
      }
      const bool before_text = std::string_view(key) == "cls";
      (before_text ? spec_.bos : spec_.eos) = kvcache::TokenId{static_cast<int32_t>(*id)};
      (before_text ? spec_.add_bos : spec_.add_eos) = true;
    }
    return absl::OkStatus();
  }

  const Json& root_;
  const Json& config_;
  TokenizerSpec spec_;
  bool is_byte_level_ = false;
  NormalizedSpaces normalized_spaces_ = NormalizedSpaces::kAsTheyAre;
  int template_tokens_ = 0;
};

void ApplyAddBosToken(const Json& config, TokenizerSpec* spec) {
  if (FindOrNull(config, "add_bos_token") != nullptr) {
    spec->add_bos = BoolOf(config, "add_bos_token", false);
  }
}

// transformers tells templates what these files call tokens, or the class by itself, not what other
// files have ids of. A class's own tokens are taken to be those that the model has ids of.
void LeaveOutTokensWithoutName(const TokenNames& names, TokenizerSpec* spec) {
  if (names.config().is_null() && (names.map() == nullptr || names.map()->is_null())) return;
  for (const char* role : {"bos_token", "eos_token"}) {
    if (names.Tells(role) || !HasTokenOfItsOwn(spec->tokenizer_class, role)) {
      spec->template_tokens.try_emplace(role);
    }
  }
}

absl::Status ApplyTemplates(const Json& config, const HuggingFaceTokenizerFiles& files,
                            TokenizerSpec* spec) {
  std::map<std::string, std::string_view> by_file = files.additional_chat_templates;
  if (!files.chat_template_jinja.empty()) by_file["default"] = files.chat_template_jinja;
  return ReadChatTemplates(config, by_file, spec);
}

absl::Status ApplyGenerationConfig(const Json& config, TokenizerSpec* spec) {
  const Json* eos = FindOrNull(config, "eos_token_id");
  if (eos == nullptr) return absl::OkStatus();
  const std::span<const Json> one(eos, 1);
  const std::span<const Json> ids =
      eos->is_array() ? std::span<const Json>(eos->get_ref<const Json::array_t&>()) : one;
  if (ids.size() > kMaxEndTokens) {
    return Refuse("generation_config.json",
                  absl::StrCat("eos_token_id has ", ids.size(), " token ids; at most ",
                               kMaxEndTokens, " are supported"));
  }
  for (const Json& entry : ids) {
    const std::optional<int64_t> id = IntOf(entry);
    if (!id.has_value() || *id < 0 || *id >= static_cast<int64_t>(spec->tokens.size())) {
      return Refuse("generation_config.json",
                    absl::StrCat("eos_token_id holds ", ShownInMessage(entry),
                                 ", must be a token id from 0 to ",
                                 static_cast<int64_t>(spec->tokens.size()) - 1));
    }
    spec->end_of_generation.push_back(kvcache::TokenId{static_cast<int32_t>(*id)});
  }
  if (!spec->eos.has_value() && !spec->end_of_generation.empty()) {
    spec->eos = spec->end_of_generation.front();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(const HuggingFaceTokenizerFiles& files) {
  if (files.tokenizer_json.empty()) return Refuse("is empty");
  const absl::StatusOr<Json> root = ParseFile("tokenizer.json", files.tokenizer_json);
  if (!root.ok()) return root.status();
  const absl::StatusOr<Json> map =
      ParseFile("special_tokens_map.json", files.special_tokens_map_json);
  if (!map.ok()) return map.status();
  const absl::StatusOr<Json> config =
      ParseFile("tokenizer_config.json", files.tokenizer_config_json);
  if (!config.ok()) return config.status();
  absl::StatusOr<TokenizerSpec> spec = TokenizerJsonReader(*root, *config).Read();
  if (!spec.ok()) return spec;
  const absl::StatusOr<Json> generation =
      ParseFile("generation_config.json", files.generation_config_json);
  if (!generation.ok()) return generation.status();

  // The config's bos is for templates; a text begins with what the post-processor names.
  const std::optional<kvcache::TokenId> begins_text =
      spec->add_bos == true ? spec->bos : std::nullopt;
  const TokenNames names(*config, *map);
  absl::Status status = ApplySpecialNames(names, &*spec);
  if (status.ok()) status = ApplyGenerationConfig(*generation, &*spec);
  if (status.ok()) status = ApplyTemplates(*config, files, &*spec);
  if (!status.ok()) return status;
  spec->tokenizer_class = StringOf(*config, "tokenizer_class");
  if (ObeysAddBosToken(spec->tokenizer_class)) ApplyAddBosToken(*config, &*spec);
  LeaveOutTokensWithoutName(names, &*spec);
  if (begins_text.has_value()) spec->bos = begins_text;
  MarkControlTokens(SpecialNamesOf(names), &*spec);
  return spec;
}

absl::StatusOr<TokenizerSpec> ParseSentencePieceSidecars(const HuggingFaceTokenizerFiles& files) {
  const absl::StatusOr<Json> config =
      ParseFile("tokenizer_config.json", files.tokenizer_config_json);
  if (!config.ok()) return config.status();
  const absl::StatusOr<Json> map =
      ParseFile("special_tokens_map.json", files.special_tokens_map_json);
  if (!map.ok()) return map.status();
  const absl::StatusOr<Json> added = ParseFile("added_tokens.json", files.added_tokens_json);
  if (!added.ok()) return added.status();

  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  const TokenNames names(*config, *map);
  const SpecialNames special = SpecialNamesOf(names);
  absl::Status status = ReadTokensBeside(*config, *added, special, &spec);
  if (!status.ok()) return status;
  MarkControlTokens(special, &spec);
  // Of names that are no added token's the model itself knows the ids.
  if (const auto id = FindToken(spec, names.Of("bos_token").text)) spec.bos = id;
  if (const auto id = FindToken(spec, names.Of("eos_token").text)) spec.eos = id;
  ApplyTemplateTokens(names, &spec);
  if (!BoolOf(*config, "legacy", true)) {
    spec.add_space_prefix = BoolOf(*config, "add_prefix_space", true);
    spec.space_prefix_at_start_only = true;
    spec.space_prefix_unless_present = true;
  }
  status = ApplyTemplates(*config, files, &spec);
  if (!status.ok()) return status;
  spec.tokenizer_class = StringOf(*config, "tokenizer_class");
  ApplyAddBosToken(*config, &spec);
  return spec;
}

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json) {
  return ParseTokenizerJson(HuggingFaceTokenizerFiles{.tokenizer_json = tokenizer_json});
}

}  // namespace refrain::engine
