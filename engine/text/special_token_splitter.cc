#include "engine/text/special_token_splitter.h"

#include <algorithm>
#include <utility>

#include "engine/text/encode_pace.h"

namespace refrain::engine {
namespace {

void Did(EncodePace* pace, size_t bytes) {
  if (pace != nullptr) pace->Did(bytes);
}

bool Stopped(const EncodePace* pace) { return pace != nullptr && pace->stopped(); }

// Where the white space that ends at `end_byte` begins, at or behind `first_byte`.
size_t SpaceBegin(std::string_view text, size_t first_byte, size_t end_byte, EncodePace* pace) {
  size_t begin = end_byte;
  while (begin > first_byte && !Stopped(pace)) {
    const size_t bytes = SpaceBytesAtEnd(text.substr(first_byte, begin - first_byte));
    if (bytes == 0) break;
    begin -= bytes;
    Did(pace, bytes);
  }
  return begin;
}

// Where the white space that begins at `begin_byte` ends.
size_t SpaceEnd(std::string_view text, size_t begin_byte, EncodePace* pace) {
  size_t end = begin_byte;
  while (!Stopped(pace)) {
    const size_t bytes = SpaceBytesAtStart(text.substr(end));
    if (bytes == 0) break;
    end += bytes;
    Did(pace, bytes);
  }
  return end;
}

}  // namespace

absl::Status SpecialTokenSplitter::Add(std::string_view text, kvcache::TokenId id,
                                       SpecialTokenMatcher::Scope scope,
                                       const AddedTokenRule& rule) {
  if (rule.single_word && !words_.has_value()) {
    absl::StatusOr<WordCharacters> words = WordCharacters::Create();
    if (!words.ok()) return words.status();
    words_ = *std::move(words);
  }
  if (rule != AddedTokenRule()) rules_.insert_or_assign(static_cast<int32_t>(id), rule);
  takes_space_ |= rule.takes_space_before || rule.takes_space_behind;
  has_after_others_ |= rule.after_others;
  (rule.after_others ? after_others_ : first_).Add(text, id, scope);
  return absl::OkStatus();
}

AddedTokenRule SpecialTokenSplitter::RuleOf(kvcache::TokenId id) const {
  const auto it = rules_.find(static_cast<int32_t>(id));
  return it == rules_.end() ? AddedTokenRule() : it->second;
}

std::optional<kvcache::TokenId> SpecialTokenSplitter::FindExact(std::string_view text) const {
  const std::optional<kvcache::TokenId> id = first_.FindExact(text);
  return id.has_value() ? id : after_others_.FindExact(text);
}

void SpecialTokenSplitter::Split(std::string_view text, const EncodeOptions& options,
                                 absl::FunctionRef<bool(const Part&)> visit) const {
  const TextSpan whole{0, text.size()};
  if (!has_after_others_) {
    SplitRange(first_, text, whole, options, visit);
    return;
  }
  SplitRange(first_, text, whole, options, [&](const Part& part) {
    if (part.token.has_value()) return visit(part);
    return SplitRange(after_others_, text, part.span, options, visit);
  });
}

bool SpecialTokenSplitter::SplitRange(const SpecialTokenMatcher& matcher, std::string_view text,
                                      const TextSpan& range, const EncodeOptions& options,
                                      absl::FunctionRef<bool(const Part&)> visit) const {
  text = text.substr(0, range.end_byte);
  size_t at = range.begin_byte;         // behind the parts so far
  size_t searched_to = at;              // white space does not keep tokens in it from being found
  size_t space_end = range.begin_byte;  // from some place before `searched_to` it is all space
  while (searched_to < text.size() && !Stopped(options.pace)) {
    const auto match =
        matcher.FindNext(text, searched_to, options.parse_special, options.plain_spans);
    Did(options.pace, (match.has_value() ? match->end_byte : text.size()) - searched_to);
    if (!match.has_value()) break;
    searched_to = match->end_byte;
    const AddedTokenRule rule = RuleOf(match->id);
    if (rule.single_word &&
        (words_->EndWord(text.substr(range.begin_byte, match->begin_byte - range.begin_byte)) ||
         words_->BeginWord(text.substr(match->end_byte)))) {
      continue;
    }
    TextSpan taken{match->begin_byte, match->end_byte};
    if (rule.takes_space_before) {
      taken.begin_byte = SpaceBegin(text, at, match->begin_byte, options.pace);
    }
    if (rule.takes_space_behind) {
      // Tokens that are white space themselves must not look through one run again and again.
      space_end = SpaceEnd(text, std::max(match->end_byte, space_end), options.pace);
      taken.end_byte = space_end;
    }
    if (Stopped(options.pace)) return false;
    if (taken.begin_byte > at && !visit({{at, taken.begin_byte}, std::nullopt})) return false;
    if (!visit({taken, match})) return false;
    at = taken.end_byte;
  }
  if (Stopped(options.pace)) return false;
  return at >= text.size() || visit({{at, text.size()}, std::nullopt});
}

}  // namespace refrain::engine
