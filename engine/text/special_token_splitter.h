#ifndef REFRAIN_ENGINE_TEXT_SPECIAL_TOKEN_SPLITTER_H_
#define REFRAIN_ENGINE_TEXT_SPECIAL_TOKEN_SPLITTER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/hash_map.h"
#include "engine/text/character_class.h"
#include "engine/text/special_token_matcher.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"
#include "kvcache/types.h"

namespace refrain::engine {

// Cuts special tokens out of a text, each with the white space that it takes, as AddedVocabulary of
// Hugging Face `tokenizers` does: first those that are not normalized, from the left and the
// longest at each place; then the others, in each stretch that is left, as if it were the text.
//
// Does not tokenize. Filled once by a tokenizer, then only read, by any thread. Time is linear in
// the length of the text, for tokens of bounded length.
class SpecialTokenSplitter {
 public:
  struct Part {
    TextSpan span;
    // Absent: a stretch of text. Its span is the token as it is spelled; the part's has the white
    // space, too.
    std::optional<SpecialTokenMatcher::Match> token;
  };

  // An empty text is never found. Fails only for a rule with single_word, as WordCharacters does.
  absl::Status Add(std::string_view text, kvcache::TokenId id, SpecialTokenMatcher::Scope scope,
                   const AddedTokenRule& rule);

  // Calls `visit` with every part, in order; none is empty. They cover the text, and overlap only
  // where a token is white space that another one has taken: it is found all the same, and what
  // was taken behind it is text again. Of `options`, `parse_special`, `plain_spans` and `pace`
  // count. Ends where `visit` returns false or the pace has stopped.
  void Split(std::string_view text, const EncodeOptions& options,
             absl::FunctionRef<bool(const Part&)> visit) const;

  std::optional<kvcache::TokenId> FindExact(std::string_view text) const;

  // Whether there are tokens that take white space.
  bool takes_space() const { return takes_space_; }

 private:
  // False: ended early.
  bool SplitRange(const SpecialTokenMatcher& matcher, std::string_view text, const TextSpan& range,
                  const EncodeOptions& options, absl::FunctionRef<bool(const Part&)> visit) const;
  AddedTokenRule RuleOf(kvcache::TokenId id) const;

  SpecialTokenMatcher first_;
  SpecialTokenMatcher after_others_;
  bool has_after_others_ = false;
  bool takes_space_ = false;
  HashMap<int32_t, AddedTokenRule> rules_;  // those that are not the default
  std::optional<WordCharacters> words_;     // where a rule asks for them
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SPECIAL_TOKEN_SPLITTER_H_
