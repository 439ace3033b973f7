#include "engine/text/vocabulary_tokenizer.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

// Text is searched for them byte by byte: so much work per byte of a request that almost holds one.
constexpr size_t kMaxSpecialTokenBytes = 512;

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

// The message tells bytes of a stretch; says where that begins.
absl::Status BehindByte(size_t begin_byte, const absl::Status& status) {
  if (begin_byte == 0) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  ", counted from byte ", begin_byte));
}

}  // namespace

absl::Status ApplySpecialTokens(const TokenizerSpec& spec, Vocabulary* vocabulary) {
  vocabulary->ends_generation.assign(vocabulary->tokens.size(), false);
  for (size_t i = 0; i < vocabulary->tokens.size(); ++i) {
    const kvcache::TokenId id{static_cast<int32_t>(i)};
    const TokenType type = vocabulary->tokens.type(id);
    const bool always = type == TokenType::kUserDefined;
    if (!always && type != TokenType::kControl && type != TokenType::kUnknown) continue;
    const std::string& text = spec.tokens[i];
    if (text.size() > kMaxSpecialTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the special token ", i, " has ", text.size(),
                                                     " bytes; at most ", kMaxSpecialTokenBytes,
                                                     " are supported"));
    }
    vocabulary->specials.Add(
        text, id,
        always ? SpecialTokenMatcher::Scope::kAlways : SpecialTokenMatcher::Scope::kWhenRequested);
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
  return absl::OkStatus();
}

absl::StatusOr<std::vector<kvcache::TokenId>> VocabularyTokenizer::Encode(
    std::string_view utf8, const EncodeOptions& options) const {
  std::vector<kvcache::TokenId> ids;
  ids.reserve(utf8.size() / 3 + 8);
  const bool wants_bos = !options.continues && options.add_bos.value_or(vocabulary_.adds_bos);
  if (wants_bos && vocabulary_.bos.has_value()) ids.push_back(*vocabulary_.bos);
  StretchPlace place = options.continues ? StretchPlace::kAfterText : StretchPlace::kTextStart;
  size_t at = 0;
  while (at < utf8.size()) {
    const std::optional<SpecialTokenMatcher::Match> special =
        vocabulary_.specials.FindNext(utf8, at, options.parse_special, options.plain_spans);
    const size_t end = special.has_value() ? special->begin_byte : utf8.size();
    if (options.pace != nullptr) options.pace->Did((special ? special->end_byte : end) - at);
    if (end > at) {
      absl::Status status = EncodeRepaired(utf8.substr(at, end - at), place, options.pace, &ids);
      if (!status.ok()) return BehindByte(at, status);
    }
    if (options.pace != nullptr && options.pace->stopped()) {
      return absl::CancelledError("tokenizing was stopped");
    }
    if (!special.has_value()) break;
    ids.push_back(special->id);
    at = special->end_byte;
    place = StretchPlace::kAfterSpecialToken;
  }
  return ids;
}

std::vector<ControlToken> VocabularyTokenizer::FindControlTokens(
    std::string_view utf8, const EncodeOptions& options) const {
  std::vector<ControlToken> found;
  size_t at = 0;
  while (const auto special =
             vocabulary_.specials.FindNext(utf8, at, options.parse_special, options.plain_spans)) {
    if (IsControl(special->id)) {
      found.push_back({{special->begin_byte, special->end_byte}, special->id});
    }
    at = special->end_byte;
  }
  return found;
}

absl::Status VocabularyTokenizer::EncodeRepaired(std::string_view bytes, StretchPlace place,
                                                 EncodePace* pace,
                                                 std::vector<kvcache::TokenId>* out) const {
  const bool valid = IsValidUtf8(bytes);
  if (pace != nullptr) pace->Did(bytes.size());
  if (valid) return EncodeStretch(bytes, place, pace, out);
  return EncodeStretch(ReplaceIllFormedUtf8(bytes), place, pace, out);
}

std::string_view VocabularyTokenizer::TokenBytes(kvcache::TokenId id) const {
  return vocabulary_.tokens.bytes(id);
}

bool VocabularyTokenizer::IsControl(kvcache::TokenId id) const {
  const TokenType type = vocabulary_.tokens.type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool VocabularyTokenizer::IsEndOfGeneration(kvcache::TokenId id) const {
  return vocabulary_.tokens.Contains(id) && vocabulary_.ends_generation[kvcache::ToIndex(id)];
}

}  // namespace refrain::engine
