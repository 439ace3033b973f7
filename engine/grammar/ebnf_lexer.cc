#include "engine/grammar/ebnf_lexer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

using Kind = EbnfToken::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsOfName(char c) { return IsLetter(c) || IsDigit(c) || c == '-' || c == '_'; }
bool IsPunctuation(char c) { return c > ' ' && c <= '~' && !IsLetter(c) && !IsDigit(c); }

std::optional<uint32_t> HexOf(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

// --- places ---

void EbnfLexer::Fail(size_t at, std::string_view problem) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(at), ": ", absl::string_view(problem.data(), problem.size())));
  }
  at_ = grammar_.size();
}

std::string EbnfLexer::PlaceOf(size_t at) const {
  size_t line = 1, line_begin = 0;
  for (size_t i = 0; i < at; ++i) {
    if (!ends_line(i)) continue;
    ++line;
    line_begin = i + 1;
  }
  const size_t column = CountUtf8Characters(grammar_.substr(line_begin, at - line_begin)) + 1;
  return absl::StrCat("line ", line, ", column ", column);
}

// --- tokens ---

bool EbnfLexer::Take(std::string_view text) {
  if (!Continues(text)) return false;
  at_ += text.size();
  return true;
}

bool EbnfLexer::SkipSpace() {
  bool begins_line = at_ == 0;
  for (; !is_at_end(); ++at_) {
    if (here() == '#') {
      while (!is_at_line_end()) ++at_;
    }
    if (is_at_line_end()) begins_line = true;
    if (is_at_end() || (!is_at_line_end() && here() != ' ' && here() != '\t')) break;
  }
  return begins_line;
}

EbnfToken EbnfLexer::Next() {
  EbnfToken token;
  token.is_first_on_line = SkipSpace();
  token.begin = at_;
  if (is_at_end()) return token;
  const auto take_one = [&](Kind kind) {
    token.kind = kind;
    ++at_;
  };
  switch (here()) {
    case '"':
      TakeLiteral(&token);
      break;
    case '[':
      TakeClass(&token);
      break;
    case '.':
      take_one(Kind::kCharacters);
      token.ranges = {{0, kLastCharacter}};
      break;
    case '(':
      if (Continues("(=")) {
        TakeOther(&token);
      } else {
        take_one(Kind::kOpen);
      }
      break;
    case ')':
      take_one(Kind::kClose);
      break;
    case '|':
      take_one(Kind::kOr);
      break;
    case '*':
    case '+':
    case '?':
    case '{':
      TakeQuantifier(&token);
      break;
    default:
      if (IsOfName(here())) {
        TakeName(&token);
      } else {
        TakeOther(&token);
      }
  }
  return status_.ok() ? std::move(token) : EbnfToken{};
}

void EbnfLexer::TakeName(EbnfToken* token) {
  token->kind = Kind::kName;
  while (IsOfName(here())) token->text.push_back(grammar_[at_++]);
  const size_t behind = at_;
  SkipSpace();
  if (Take("::=")) {
    token->kind = Kind::kRuleName;
  } else {
    at_ = behind;
  }
}

void EbnfLexer::TakeOther(EbnfToken* token) {
  token->kind = Kind::kOther;
  for (const std::string_view known : {"::=", "(=", "!<"}) {
    if (Continues(known)) token->text = known;
  }
  if (token->text.empty() && IsPunctuation(here())) token->text = std::string(1, here());
  at_ = grammar_.size();  // whoever reads this goes no further
}

void EbnfLexer::TakeLiteral(EbnfToken* token) {
  token->kind = Kind::kLiteral;
  ++at_;
  while (!is_at_line_end() && here() != '"') AppendUtf8(TakeCharacter(), &token->text);
  if (!Take("\"")) {
    Fail(token->begin, "the literal is not closed: expected '\"' before the end of the line");
  }
}

// --- classes ---

void EbnfLexer::TakeClass(EbnfToken* token) {
  token->kind = Kind::kCharacters;
  ++at_;
  const bool is_negated = Take("^");
  CharacterRanges ranges;
  while (!is_at_line_end() && here() != ']') TakeClassMember(&ranges);
  if (!Take("]")) {
    return Fail(token->begin, "the class is not closed: expected ']' before the end of the line");
  }
  // Dialects differ in what one of none is.
  if (ranges.empty()) {
    return Fail(token->begin, "expected a character in the class; any one is '.', and ']' is \\]");
  }
  ranges = Normalised(std::move(ranges));
  token->ranges = is_negated ? Complement(ranges) : std::move(ranges);
}

void EbnfLexer::TakeClassMember(CharacterRanges* ranges) {
  const size_t begin = at_;
  const char32_t first = TakeCharacter();
  char32_t last = first;
  if (here() == '-' && !Continues("-]")) {
    ++at_;
    if (is_at_line_end()) return;  // a class that is not closed
    last = TakeCharacter();
    if (last < first && status_.ok()) Fail(begin, "the range of characters is out of order");
  }
  ranges->push_back({first, last});
}

// --- quantifiers ---

void EbnfLexer::TakeQuantifier(EbnfToken* token) {
  token->kind = Kind::kQuantifier;
  token->text = std::string(1, here());
  if (here() == '{') return TakeBounds(token);
  if (here() == '+') token->min = 1;
  if (here() == '?') token->max = 1;
  ++at_;
}

void EbnfLexer::TakeBounds(EbnfToken* token) {
  ++at_;
  SkipSpace();
  const std::optional<int> min = TakeBound();
  SkipSpace();
  token->max = min;
  if (Take(",")) {
    SkipSpace();
    token->max = TakeBound();
    SkipSpace();
  }
  if (!Take("}") || (!min.has_value() && !token->max.has_value())) {
    return Fail(token->begin, "expected {m}, {m,}, {,n} or {m,n}");
  }
  token->min = min.value_or(0);
  if (std::max(token->min, token->max.value_or(0)) > kMostEbnfRepetitions) {
    return Fail(token->begin, absl::StrCat("a quantifier over ", kMostEbnfRepetitions));
  }
  if (token->max.has_value() && *token->max < token->min) {
    Fail(token->begin, "the bounds of the quantifier are out of order");
  }
}

std::optional<int> EbnfLexer::TakeBound() {
  if (!IsDigit(here())) return std::nullopt;
  int bound = 0;
  for (; IsDigit(here()); ++at_) {
    bound = std::min(10 * bound + (here() - '0'), kMostEbnfRepetitions + 1);
  }
  return bound;
}

// --- characters ---

char32_t EbnfLexer::TakeCharacter() {
  if (here() == '\\') return TakeEscape();
  const Utf8Unit unit = FirstUtf8Unit(grammar_.substr(at_));
  if (unit.kind != Utf8Unit::Kind::kCharacter) {
    Fail(at_, "what stands there is not UTF-8");
    return 0;
  }
  at_ += unit.size_bytes;
  return unit.code_point;
}

char32_t EbnfLexer::TakeEscape() {
  const size_t begin = at_++;
  const char escaped = here();
  constexpr std::string_view kLetters = "nrtabefv0", kMeant("\n\r\t\a\b\x1B\f\v\0", 9);
  if (const size_t letter = kLetters.find(escaped); letter != kLetters.npos) {
    ++at_;
    return static_cast<char32_t>(kMeant[letter]);
  }
  if (IsPunctuation(escaped)) {
    ++at_;
    return static_cast<char32_t>(escaped);
  }
  if (Take("x")) return TakeCode(begin, 2);
  if (Take("u")) return TakeCode(begin, 4);
  if (Take("U")) return TakeCode(begin, 8);
  Fail(begin,
       "the escape is not known: expected \\n, \\r, \\t, \\xHH, \\uHHHH, \\UHHHHHHHH, or "
       "punctuation behind the '\\'");
  return 0;
}

char32_t EbnfLexer::TakeCode(size_t begin, int num_digits) {
  const char32_t code = TakeHex(begin, num_digits);
  if (IsHighSurrogate(code) && Take("\\u")) {
    const char32_t low = TakeHex(begin, 4);
    if (IsLowSurrogate(low)) return CharacterOfSurrogates(code, low);
  }
  if (IsHighSurrogate(code) || IsLowSurrogate(code)) {
    Fail(begin, "half of a surrogate pair is no character");
    return 0;
  }
  if (code > kLastCharacter) {
    Fail(begin, "no character has this code: expected 10FFFF or less");
    return 0;
  }
  return code;
}

char32_t EbnfLexer::TakeHex(size_t begin, int num_digits) {
  char32_t code = 0;
  for (int i = 0; i < num_digits; ++i, ++at_) {
    const std::optional<uint32_t> digit = HexOf(here());
    if (!digit.has_value()) {
      Fail(begin, absl::StrCat("expected ", num_digits, " hexadecimal digits in the escape"));
      return 0;
    }
    code = code * 16 + *digit;
  }
  return code;
}

}  // namespace refrain::engine
