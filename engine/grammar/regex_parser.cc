#include "engine/grammar/regex_parser.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/character_ranges.h"
#include "engine/grammar/regex_characters.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

using Kind = RegexNode::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Descends into groups alone, which are bounded. After a failure it is at the end of the pattern,
// and what it returns says nothing.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<RegexNode> Parse() {
    RegexNode root = ParseAlternatives();
    if (!is_at_end()) Fail(at_, "a ')' that closes nothing");
    if (!status_.ok()) return status_;
    return root;
  }

 private:
  bool is_at_end() const { return at_ == pattern_.size(); }
  char here() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }
  bool Continues(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }
  bool Take(std::string_view text) {
    if (!Continues(text)) return false;
    at_ += text.size();
    return true;
  }

  void Fail(size_t at, std::string_view what) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("pattern, at byte ", at, ": ", absl::string_view(what.data(), what.size()))));
    at_ = pattern_.size();
  }
  void FailUnsupported(size_t at, std::string_view what) {
    Fail(at, absl::StrCat(absl::string_view(what.data(), what.size()), " is not supported"));
  }

  // --- structure ---

  RegexNode ParseAlternatives() {
    RegexNode alternatives{Kind::kAlternatives};
    do {
      RegexNode sequence = ParseSequence();
      NoteAnchors(sequence, &alternatives);
      alternatives.parts.push_back(std::move(sequence));
    } while (Take("|"));
    return alternatives;
  }

  RegexNode ParseSequence() {
    RegexNode sequence{Kind::kSequence};
    while (!is_at_end() && here() != '|' && here() != ')') {
      RegexNode part = ParseTerm();
      const bool is_first =
          std::all_of(sequence.parts.begin(), sequence.parts.end(),
                      [](const RegexNode& before) { return before.kind == Kind::kBegin; });
      if (part.begin_anchor.has_value() && !is_first) {
        Fail(*part.begin_anchor, "a '^' that does not begin the pattern or an alternative of it");
      }
      if (sequence.end_anchor.has_value() && part.kind != Kind::kEnd) {
        Fail(*sequence.end_anchor, "a '$' that does not end the pattern or an alternative of it");
      }
      NoteAnchors(part, &sequence);
      sequence.parts.push_back(std::move(part));
    }
    return sequence;
  }

  static void NoteAnchors(const RegexNode& part, RegexNode* whole) {
    if (!whole->begin_anchor.has_value()) whole->begin_anchor = part.begin_anchor;
    if (!whole->end_anchor.has_value()) whole->end_anchor = part.end_anchor;
  }

  RegexNode ParseTerm() {
    const size_t begin = at_;
    // Python's \A, \Z and \z are letters in ECMAScript, which nobody means who writes them.
    const bool is_begin = here() == '^' || Continues("\\A");
    if (is_begin || here() == '$' || Continues("\\Z") || Continues("\\z")) {
      RegexNode anchor{is_begin ? Kind::kBegin : Kind::kEnd};
      (is_begin ? anchor.begin_anchor : anchor.end_anchor) = begin;
      at_ += here() == '\\' ? 2 : 1;
      if (ParseQuantifier().has_value()) Fail(begin, "an anchor with a quantifier");
      return anchor;
    }
    RegexNode atom = ParseAtom();
    std::optional<Quantifier> quantifier = ParseQuantifier();
    if (!quantifier.has_value()) return atom;
    if (atom.begin_anchor.has_value() || atom.end_anchor.has_value()) {
      Fail(begin, "a group with an anchor and a quantifier");
    }
    RegexNode repetition{Kind::kRepetition};
    repetition.min = quantifier->min;
    repetition.max = quantifier->max;
    repetition.parts.push_back(std::move(atom));
    return repetition;
  }

  RegexNode ParseAtom() {
    const size_t begin = at_;
    switch (here()) {
      case '(':
        return ParseGroup();
      case '[':
        return ParseClass();
      case '.':
        ++at_;
        return Characters(AllButLineEnds());
      case '*':
      case '+':
      case '?':
        Fail(begin, "a quantifier of nothing");
        return {Kind::kSequence};
      case '\\':
        return Characters(ParseEscape(/*in_class=*/false).ranges);
      default:
        // As browsers have it without flag u: a brace that is no quantifier is itself.
        if (ParseQuantifier().has_value()) Fail(begin, "a quantifier of nothing");
        const char32_t character = TakeCharacter();
        return Characters({{character, character}});
    }
  }

  RegexNode ParseGroup() {
    const size_t begin = at_++;
    if (Take("?") && !Take(":")) SkipGroupName(begin);
    if (++nesting_ > kMostPatternNesting) {
      Fail(begin, absl::StrCat("groups nest deeper than ", kMostPatternNesting));
    }
    RegexNode group = ParseAlternatives();
    --nesting_;
    if (!Take(")")) Fail(begin, "a group that is not closed");
    return group;
  }

  // Behind `(?`.
  void SkipGroupName(size_t begin) {
    if (here() == '=' || here() == '!') return FailUnsupported(begin, "look-ahead");
    if (Continues("<=") || Continues("<!")) return FailUnsupported(begin, "look-behind");
    if (!Take("<") && !Take("P<")) return FailUnsupported(begin, "this kind of group");  // Python's
    const size_t name = at_;
    while (IsLetter(here()) || IsDigit(here()) || here() == '_' || here() == '$') ++at_;
    if (at_ == name || IsDigit(pattern_[name]) || !Take(">")) Fail(begin, "a group of no name");
  }

  // --- quantifiers ---

  struct Quantifier {
    int min;
    std::optional<int> max;
  };

  // None, and nothing read, where there is none.
  std::optional<Quantifier> ParseQuantifier() {
    const size_t begin = at_;
    Quantifier quantifier{0, std::nullopt};
    if (Take("+")) {
      quantifier.min = 1;
    } else if (Take("?")) {
      quantifier.max = 1;
    } else if (!Take("*")) {
      if (!Take("{") || !ParseBounds(&quantifier)) {
        at_ = begin;
        return std::nullopt;
      }
      if (std::max(quantifier.min, quantifier.max.value_or(0)) > kMostRepetitions) {
        Fail(begin, absl::StrCat("a quantifier over ", kMostRepetitions));
      } else if (quantifier.max.has_value() && *quantifier.max < quantifier.min) {
        Fail(begin, "a quantifier whose bounds are out of order");
      }
    }
    Take("?");  // lazy: it takes the same texts
    return quantifier;
  }

  // Behind `{`, to behind `}`.
  bool ParseBounds(Quantifier* quantifier) {
    const std::optional<int> min = ParseBound();
    if (!min.has_value()) return false;
    quantifier->min = *min;
    quantifier->max = min;
    if (Take(",")) quantifier->max = ParseBound();
    return Take("}");
  }

  std::optional<int> ParseBound() {
    if (!IsDigit(here())) return std::nullopt;
    int bound = 0;
    for (; IsDigit(here()); ++at_)
      bound = std::min(10 * bound + (here() - '0'), kMostRepetitions + 1);
    return bound;
  }

  // --- characters ---

  static RegexNode Characters(CharacterRanges ranges) {
    RegexNode node{Kind::kCharacters};
    node.ranges = std::move(ranges);
    return node;
  }

  char32_t TakeCharacter() {
    if (is_at_end()) return 0;  // after a failure
    const Utf8Unit unit = FirstUtf8Unit(pattern_.substr(at_));
    if (unit.kind != Utf8Unit::Kind::kCharacter) {
      Fail(at_, "what is not UTF-8");
      return 0;
    }
    at_ += unit.size_bytes;
    return unit.code_point;
  }

  // A class of characters, or one of them.
  struct Escape {
    CharacterRanges ranges;
    bool is_class = false;
  };
  static Escape One(char32_t character) { return {{{character, character}}}; }

  Escape ParseEscape(bool in_class) {
    const size_t begin = at_++;
    const char escaped = here();
    if (is_at_end()) {
      Fail(begin, "a backslash before nothing");
      return One(0);
    }
    if (std::optional<CharacterRanges> ranges = FindClass(escaped); ranges.has_value()) {
      ++at_;
      return {*std::move(ranges), true};
    }
    if (escaped == 'u') return One(ParseCode(begin));
    constexpr std::string_view kLetters = "tnrfv", kControls = "\t\n\r\f\v";
    if (const size_t letter = kLetters.find(escaped); letter != std::string_view::npos) {
      ++at_;
      return One(static_cast<char32_t>(kControls[letter]));
    }
    if (escaped == 'b' && in_class) {
      ++at_;
      return One('\b');
    }
    ++at_;
    if (escaped == 'x') return One(TakeHex(begin, 2));
    if (escaped == 'c' && IsLetter(here())) return One(static_cast<char32_t>(pattern_[at_++]) % 32);
    if (escaped == '0' && !IsDigit(here())) return One(0);
    const bool is_punctuation =
        escaped >= ' ' && escaped <= '~' && !IsLetter(escaped) && !IsDigit(escaped);
    if (is_punctuation) return One(static_cast<char32_t>(escaped));
    FailEscape(begin, escaped);
    return One(0);
  }

  void FailEscape(size_t begin, char escaped) {
    if (escaped == 'b' || escaped == 'B') return FailUnsupported(begin, "a word boundary");
    if (escaped == 'p' || escaped == 'P') return FailUnsupported(begin, "a Unicode property");
    if (escaped == 'k' || IsDigit(escaped)) return FailUnsupported(begin, "a back-reference");
    if (!IsLetter(escaped)) return FailUnsupported(begin, "this escape");
    FailUnsupported(begin, absl::StrCat("the escape \\", std::string(1, escaped)));
  }

  // At the `u` of `\u`.
  char32_t ParseCode(size_t begin) {
    ++at_;
    if (Take("{")) {
      char32_t code = 0;
      const size_t digits = at_;
      for (; HexOf(here()).has_value() && code <= kLastCharacter; ++at_) {
        code = code * 16 + *HexOf(here());
      }
      if (at_ == digits || !Take("}") || code > kLastCharacter) Fail(begin, "no code point");
      return CheckedCode(begin, code);
    }
    const char32_t code = TakeHex(begin, 4);
    if (!IsHighSurrogate(code) || !Take("\\u")) return CheckedCode(begin, code);
    const char32_t low = TakeHex(begin, 4);
    if (!IsLowSurrogate(low)) return CheckedCode(begin, code);
    return CharacterOfSurrogates(code, low);
  }

  char32_t CheckedCode(size_t begin, char32_t code) {
    if (IsHighSurrogate(code) || IsLowSurrogate(code)) Fail(begin, "half of a surrogate pair");
    return code;
  }

  static std::optional<uint32_t> HexOf(char c) {
    if (IsDigit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return std::nullopt;
  }

  char32_t TakeHex(size_t begin, int num_digits) {
    char32_t code = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const std::optional<uint32_t> digit = HexOf(here());
      if (!digit.has_value()) {
        Fail(begin, "an escape that lacks hexadecimal digits");
        return 0;
      }
      code = code * 16 + *digit;
    }
    return code;
  }

  // --- classes ---

  RegexNode ParseClass() {
    const size_t begin = at_++;
    const bool is_negated = Take("^");
    CharacterRanges ranges;
    while (!is_at_end() && here() != ']') ParseClassMember(&ranges);
    if (!Take("]")) Fail(begin, "a class that is not closed");
    ranges = Normalised(std::move(ranges));
    return Characters(is_negated ? Complement(ranges) : std::move(ranges));
  }

  Escape ParseClassAtom() {
    return here() == '\\' ? ParseEscape(/*in_class=*/true) : One(TakeCharacter());
  }

  // A character, a class by an escape, or a range of characters. Beside a class by an escape, '-'
  // is itself, as without flag u.
  void ParseClassMember(CharacterRanges* ranges) {
    const size_t begin = at_;
    const Escape first = ParseClassAtom();
    ranges->insert(ranges->end(), first.ranges.begin(), first.ranges.end());
    if (first.is_class || !Continues("-") || Continues("-]")) return;
    ++at_;
    if (is_at_end()) return;  // a class that is not closed
    const Escape last = ParseClassAtom();
    if (last.is_class) {
      ranges->push_back({'-', '-'});
      ranges->insert(ranges->end(), last.ranges.begin(), last.ranges.end());
    } else if (last.ranges[0].first < first.ranges[0].first) {
      Fail(begin, "a range of characters that is out of order");
    } else {
      ranges->push_back({first.ranges[0].first, last.ranges[0].first});
    }
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  int nesting_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<RegexNode> ParseRegex(std::string_view pattern) {
  if (pattern.size() > kMostPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern of ", pattern.size(), " bytes is longer than ", kMostPatternBytes));
  }
  return Parser(pattern).Parse();
}

}  // namespace refrain::engine
