#ifndef REFRAIN_ENGINE_GRAMMAR_EBNF_LEXER_H_
#define REFRAIN_ENGINE_GRAMMAR_EBNF_LEXER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/grammar/character_ranges.h"

namespace refrain::engine {

inline constexpr int kMostEbnfRepetitions = 10000;  // that a quantifier may name

struct EbnfToken {
  enum class Kind {
    kRuleName,    // `name ::=`
    kName,        // of a rule, anywhere else
    kLiteral,     // text, in UTF-8
    kCharacters,  // any one of ranges: `[...]` and `.`
    kOpen,        // (
    kClose,       // )
    kOr,          // |
    kQuantifier,  // min to max times: * + ? {...}
    kOther,       // nothing of EBNF; text is a part of what stands there
    kEnd,         // of the grammar
  };

  Kind kind = Kind::kEnd;
  size_t begin = 0;  // byte of the grammar
  bool is_first_on_line = false;
  std::string text;
  CharacterRanges ranges;  // ascending, disjoint; may have surrogates among them
  int min = 0;
  std::optional<int> max;  // none: any number
};

// Reads the tokens of a grammar, as AddEbnf describes them: a name is that of a new rule where
// `::=` stands behind it, so that line ends separate tokens and nothing more. One thread.
//
// Failure: the first one stays, whoever noted it, and the grammar ends there.
class EbnfLexer {
 public:
  // The grammar outlives it.
  explicit EbnfLexer(std::string_view grammar) : grammar_(grammar) {}

  EbnfToken Next();

  // INVALID_ARGUMENT, "line 3, column 7: " and the problem, of this byte.
  void Fail(size_t at, std::string_view problem);
  const absl::Status& status() const { return status_; }
  // Whether a line ends with this byte: \n, \r\n, or \r alone.
  bool ends_line(size_t at) const {
    return grammar_[at] == '\n' || (grammar_[at] == '\r' && grammar_.substr(at + 1, 1) != "\n");
  }
  // "line 3, column 7", both from 1, columns in characters. Takes time for all before it.
  std::string PlaceOf(size_t at) const;

 private:
  bool is_at_end() const { return at_ == grammar_.size(); }
  bool is_at_line_end() const { return is_at_end() || here() == '\n' || here() == '\r'; }
  char here() const { return at_ < grammar_.size() ? grammar_[at_] : '\0'; }
  bool Continues(std::string_view text) const { return grammar_.substr(at_, text.size()) == text; }
  bool Take(std::string_view text);

  // And comments. Whether a line begins behind it.
  bool SkipSpace();
  void TakeName(EbnfToken* token);
  void TakeLiteral(EbnfToken* token);
  void TakeClass(EbnfToken* token);
  void TakeClassMember(CharacterRanges* ranges);
  void TakeQuantifier(EbnfToken* token);
  void TakeBounds(EbnfToken* token);
  std::optional<int> TakeBound();
  void TakeOther(EbnfToken* token);

  // What they return after a failure says nothing.
  char32_t TakeCharacter();
  char32_t TakeEscape();
  char32_t TakeCode(size_t begin, int num_digits);
  char32_t TakeHex(size_t begin, int num_digits);

  std::string_view grammar_;
  size_t at_ = 0;
  absl::Status status_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_EBNF_LEXER_H_
