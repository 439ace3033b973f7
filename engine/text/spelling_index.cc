#include "engine/text/spelling_index.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

// Ten times the largest vocabulary published so far.
constexpr size_t kMaxVocabularyTokens = 4'000'000;
constexpr size_t kMaxMerges = 16'000'000;

}  // namespace

TokenType TypeOf(const TokenizerSpec& spec, size_t id) {
  if (spec.token_types.empty()) return TokenType::kNormal;
  const TokenType type = spec.token_types[id];
  // Who needed some token for padding may have declared one that everybody writes to be special.
  const std::string& text = spec.tokens[id];
  if (type == TokenType::kControl && text.size() == 1 && text[0] > ' ' && text[0] < 0x7f) {
    return TokenType::kUserDefined;
  }
  return type >= TokenType::kNormal && type <= TokenType::kByte ? type : TokenType::kNormal;
}

absl::StatusOr<SpellingIndex> SpellingIndex::Create(const TokenizerSpec& spec) {
  const size_t size = spec.tokens.size();
  if (size == 0) return absl::InvalidArgumentError("the vocabulary has no tokens");
  if (size > kMaxVocabularyTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the vocabulary has ", size, " tokens, more than the limit of ", kMaxVocabularyTokens));
  }
  if (!spec.token_types.empty() && spec.token_types.size() != size) {
    return absl::InvalidArgumentError(absl::StrCat("the vocabulary has ", size, " tokens but ",
                                                   spec.token_types.size(), " token types"));
  }
  if (!spec.scores.empty() && spec.scores.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the vocabulary has ", size, " tokens but ", spec.scores.size(), " scores"));
  }
  if (spec.merges.size() > kMaxMerges) {
    return absl::InvalidArgumentError(absl::StrCat("the vocabulary has ", spec.merges.size(),
                                                   " merges, more than the limit of ", kMaxMerges));
  }
  SpellingIndex index;
  index.ids_.reserve(size);
  for (size_t id = 0; id < size; ++id) {
    // Some files pad their vocabulary with empty tokens; they never match text.
    if (spec.tokens[id].empty()) continue;
    const auto [it, is_new] = index.ids_.try_emplace(spec.tokens[id], static_cast<int32_t>(id));
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("tokens ", it->second, " and ", id,
                                                     " are both spelled '",
                                                     absl::CHexEscape(spec.tokens[id]), "'"));
    }
  }
  return index;
}

int32_t SpellingIndex::Find(std::string_view spelling) const {
  const auto it = ids_.find(spelling);
  return it == ids_.end() ? -1 : it->second;
}

absl::StatusOr<PairMerger> SpellingIndex::BuildMerger(const TokenizerSpec& spec) const {
  PairMerger merger(spec.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "merge ", rank, " '", absl::CHexEscape(std::string(merge)), "' is not two tokens"));
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const int32_t left_id = Find(left);
    const int32_t right_id = Find(right);
    const int32_t result = Find(joined);
    if (left_id < 0 || right_id < 0 || result < 0) {
      const std::string_view missing = left_id < 0 ? left : right_id < 0 ? right : joined;
      return absl::InvalidArgumentError(absl::StrCat(
          "merge ", rank, " '", absl::CHexEscape(std::string(merge)), "' needs the token '",
          absl::CHexEscape(std::string(missing)), "', which the vocabulary lacks"));
    }
    // Whatever the merges say: text never becomes a token that content cannot spell by merging.
    const TokenType type = TypeOf(spec, result);
    if (type == TokenType::kControl) continue;
    if (type == TokenType::kUserDefined && LooksLikeControl(joined)) continue;
    merger.Add(left_id, right_id, static_cast<int32_t>(rank), result);
  }
  return merger;
}

}  // namespace refrain::engine
