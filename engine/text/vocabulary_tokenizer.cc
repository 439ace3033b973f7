#include "engine/text/vocabulary_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/character_class.h"
#include "engine/text/composed_text.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

// Text is searched for them byte by byte: so much work per byte of a request that almost holds one.
constexpr size_t kMaxSpecialTokenBytes = 512;
// Of all of them together: the matcher takes 20 bytes of memory for each. 65,536 tokens of speech
// have 1 MB.
constexpr size_t kMaxAllSpecialTokenBytes = 16'000'000;

bool IsSpecial(TokenType type) {
  return type == TokenType::kUserDefined || type == TokenType::kControl ||
         type == TokenType::kUnknown;
}

absl::Status CheckSpecialTokenBytes(const TokenizerSpec& spec, const TokenTable& tokens) {
  size_t all_bytes = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!IsSpecial(tokens.type(kvcache::TokenId{static_cast<int32_t>(i)}))) continue;
    const size_t bytes = spec.tokens[i].size();
    if (bytes > kMaxSpecialTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the special token ", i, " has ", bytes,
                                                     " bytes; at most ", kMaxSpecialTokenBytes,
                                                     " are supported"));
    }
    all_bytes += bytes;
  }
  if (all_bytes <= kMaxAllSpecialTokenBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the special tokens have ", all_bytes,
                                                 " bytes; together they have at most ",
                                                 kMaxAllSpecialTokenBytes));
}

absl::Status MarkEnd(std::optional<kvcache::TokenId> id, std::string_view what,
                     Vocabulary* vocabulary) {
  if (!id.has_value()) return absl::OkStatus();
  if (!vocabulary->tokens.Contains(*id)) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " token id ", static_cast<int32_t>(*id),
                     " is outside of the vocabulary of ", vocabulary->tokens.size(), " tokens"));
  }
  vocabulary->ends_generation[kvcache::ToIndex(*id)] = true;
  return absl::OkStatus();
}

SpecialTokenMatcher::Scope ScopeOf(TokenType type, std::string_view spelling) {
  if (type != TokenType::kUserDefined) return SpecialTokenMatcher::Scope::kWhenRequested;
  return LooksLikeControl(spelling) ? SpecialTokenMatcher::Scope::kOutsidePlainSpans
                                    : SpecialTokenMatcher::Scope::kAlways;
}

// The message tells bytes of a stretch; says where that begins.
absl::Status BehindByte(size_t begin_byte, const absl::Status& status) {
  if (begin_byte == 0) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  ", counted from byte ", begin_byte));
}

}  // namespace

absl::Status ApplySpecialTokens(const TokenizerSpec& spec, Vocabulary* vocabulary) {
  if (absl::Status s = CheckSpecialTokenBytes(spec, vocabulary->tokens); !s.ok()) return s;
  vocabulary->ends_generation.assign(vocabulary->tokens.size(), false);
  for (size_t i = 0; i < vocabulary->tokens.size(); ++i) {
    const kvcache::TokenId id{static_cast<int32_t>(i)};
    const TokenType type = vocabulary->tokens.type(id);
    if (!IsSpecial(type)) continue;
    const std::string& text = spec.tokens[i];
    const auto rule = spec.added_token_rules.find(id);
    absl::Status status = vocabulary->specials.Add(
        text, id, ScopeOf(type, text),
        rule == spec.added_token_rules.end() ? AddedTokenRule() : rule->second);
    if (!status.ok()) return status;
    if (type == TokenType::kControl && NamesEndOfGeneration(text)) {
      vocabulary->ends_generation[i] = true;
    }
  }
  if (absl::Status s = MarkEnd(spec.eos, "eos", vocabulary); !s.ok()) return s;
  if (absl::Status s = MarkEnd(spec.eot, "eot", vocabulary); !s.ok()) return s;
  if (absl::Status s = MarkEnd(spec.eom, "eom", vocabulary); !s.ok()) return s;
  for (const kvcache::TokenId id : spec.end_of_generation) {
    if (absl::Status s = MarkEnd(id, "end of generation", vocabulary); !s.ok()) return s;
  }
  if (spec.bos.has_value() && !vocabulary->tokens.Contains(*spec.bos)) {
    return absl::InvalidArgumentError(absl::StrCat("bos token id ", static_cast<int32_t>(*spec.bos),
                                                   " is outside of the vocabulary of ",
                                                   vocabulary->tokens.size(), " tokens"));
  }
  vocabulary->bos = spec.bos;
  vocabulary->eos = spec.eos;
  vocabulary->composes_text = spec.composes_text;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<kvcache::TokenId>> VocabularyTokenizer::Encode(
    std::string_view utf8, const EncodeOptions& options) const {
  std::vector<kvcache::TokenId> ids;
  ids.reserve(utf8.size() / 3 + 8);
  const bool wants_bos = !options.continues && options.add_bos.value_or(vocabulary_.adds_bos);
  if (wants_bos && vocabulary_.bos.has_value()) ids.push_back(*vocabulary_.bos);
  StretchPlace place = options.continues ? StretchPlace::kAfterText : StretchPlace::kTextStart;
  absl::Status status;
  vocabulary_.specials.Split(utf8, options, [&](const SpecialTokenSplitter::Part& part) {
    if (part.token.has_value()) {
      ids.push_back(part.token->id);
      place = StretchPlace::kAfterSpecialToken;
      return true;
    }
    const auto [begin_byte, end_byte] = part.span;
    status = BehindByte(begin_byte, FindOrEncode(utf8.substr(begin_byte, end_byte - begin_byte),
                                                 place, options, &ids));
    return status.ok();
  });
  if (!status.ok()) return status;
  if (options.pace != nullptr && options.pace->stopped()) {
    return absl::CancelledError("tokenizing was stopped");
  }
  return ids;
}

absl::Status VocabularyTokenizer::FindOrEncode(std::string_view bytes, StretchPlace place,
                                               const EncodeOptions& options,
                                               std::vector<kvcache::TokenId>* out) const {
  if (options.memo == nullptr) return EncodeRepaired(bytes, place, options.pace, out);
  const StretchMemo::Key key{options.memo_scope, static_cast<int>(place), bytes};
  if (const auto known = options.memo->Find(key); known != nullptr) {
    out->insert(out->end(), known->begin(), known->end());
    return absl::OkStatus();
  }
  if (options.pace != nullptr) {
    options.pace->Begins(bytes.size());
    if (options.pace->stopped()) return absl::OkStatus();  // Encode says so
  }
  const size_t before = out->size();
  absl::Status status = EncodeRepaired(bytes, place, options.pace, out);
  const bool stopped = options.pace != nullptr && options.pace->stopped();
  if (status.ok() && !stopped) options.memo->Remember(key, std::span(*out).subspan(before));
  return status;
}

size_t VocabularyTokenizer::BytesToEncode(std::string_view utf8,
                                          const EncodeOptions& options) const {
  size_t bytes = 0;
  StretchPlace place = options.continues ? StretchPlace::kAfterText : StretchPlace::kTextStart;
  vocabulary_.specials.Split(utf8, options, [&](const SpecialTokenSplitter::Part& part) {
    const auto [begin_byte, end_byte] = part.span;
    if (part.token.has_value()) {
      place = StretchPlace::kAfterSpecialToken;
    } else if (options.memo == nullptr ||
               options.memo->Find({options.memo_scope, static_cast<int>(place),
                                   utf8.substr(begin_byte, end_byte - begin_byte)}) == nullptr) {
      bytes += end_byte - begin_byte;
    }
    return true;
  });
  return bytes;
}

std::vector<ControlToken> VocabularyTokenizer::FindControlTokens(
    std::string_view utf8, const EncodeOptions& options) const {
  std::vector<ControlToken> found;
  vocabulary_.specials.Split(utf8, options, [&](const SpecialTokenSplitter::Part& part) {
    if (part.token.has_value() && IsReserved(part.token->id)) {
      found.push_back({{part.token->begin_byte, part.token->end_byte}, part.token->id});
    }
    return true;
  });
  return found;
}

size_t VocabularyTokenizer::CountBytesOfText(std::string_view utf8,
                                             const std::array<bool, 256>& counted) const {
  // Composed, some may become bytes that do not count.
  const bool all_count = std::find(counted.begin(), counted.end(), false) == counted.end();
  if (vocabulary_.composes_text && !all_count) return 0;
  size_t count = 0;
  for (size_t at = 0; at < utf8.size();) {
    const size_t space_bytes =
        vocabulary_.specials.takes_space() ? SpaceBytesAtStart(utf8.substr(at)) : 0;
    if (space_bytes == 0 && counted[static_cast<uint8_t>(utf8[at])]) ++count;
    at += std::max<size_t>(space_bytes, 1);
  }
  return vocabulary_.composes_text ? count / kMaxBytesPerComposedByte : count;
}

absl::Status VocabularyTokenizer::EncodeRepaired(std::string_view bytes, StretchPlace place,
                                                 EncodePace* pace,
                                                 std::vector<kvcache::TokenId>* out) const {
  const bool valid = IsValidUtf8(bytes);
  if (pace != nullptr) pace->Did(bytes.size());
  std::string repaired;
  if (!valid) {
    repaired = ReplaceIllFormedUtf8(bytes);
    bytes = repaired;
  }
  std::string composed;
  if (vocabulary_.composes_text) bytes = ComposeText(bytes, pace, &composed);
  return EncodeStretch(bytes, place, pace, out);
}

std::string_view VocabularyTokenizer::TokenBytes(kvcache::TokenId id) const {
  return vocabulary_.tokens.bytes(id);
}

bool VocabularyTokenizer::IsControl(kvcache::TokenId id) const {
  const TokenType type = vocabulary_.tokens.type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool VocabularyTokenizer::IsReserved(kvcache::TokenId id) const {
  return IsControl(id) || (vocabulary_.tokens.type(id) == TokenType::kUserDefined &&
                           LooksLikeControl(TokenBytes(id)));
}

bool VocabularyTokenizer::IsEndOfGeneration(kvcache::TokenId id) const {
  return vocabulary_.tokens.Contains(id) && vocabulary_.ends_generation[kvcache::ToIndex(id)];
}

}  // namespace refrain::engine
