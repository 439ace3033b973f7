#include "engine/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/utf8.h"

namespace refrain::engine::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// Line ends become \n, and one at the very end goes.
std::string NormalizeLineEnds(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeLineEnds(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) LexTextAndTag();
    Emit(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  [[noreturn]] void Fail(const std::string& what) const {
    throw TemplateError("line " + std::to_string(line_) + ": " + what);
  }

  void Emit(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  void Advance(size_t size_bytes) {
    line_ += static_cast<int>(
        std::count(source_.begin() + at_, source_.begin() + at_ + size_bytes, '\n'));
    at_ += size_bytes;
    if (size_bytes > 0) line_starts_here_ = source_[at_ - 1] == '\n';
  }

  void SkipSpace() { Advance(SpaceBytes(at_)); }

  // Of the white space, as Unicode has it, that begins at `from`.
  size_t SpaceBytes(size_t from) const {
    std::string_view text = std::string_view(source_).substr(from);
    const size_t all_bytes = text.size();
    while (const size_t size_bytes = LeadingWhiteSpaceBytes(text)) text.remove_prefix(size_bytes);
    return all_bytes - text.size();
  }

  // Where the next tag begins, or the end.
  size_t FindTag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i) {
      if (i + 1 == source_.size()) break;
      const char next = source_[i + 1];
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.size();
  }

  // `text` stands before a tag with this modifier (- + or none).
  std::string_view StripBeforeTag(std::string_view text, char modifier, bool is_print) const {
    if (modifier == '-') {
      while (const size_t size_bytes = TrailingWhiteSpaceBytes(text)) {
        text.remove_suffix(size_bytes);
      }
      return text;
    }
    if (modifier == '+' || is_print) return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starts_here_) return text;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    std::string_view indent = text.substr(line_begin);
    while (const size_t size_bytes = LeadingWhiteSpaceBytes(indent)) {
      indent.remove_prefix(size_bytes);
    }
    return indent.empty() ? text.substr(0, line_begin) : text;
  }

  void EmitText(size_t end, char modifier, bool is_print) {
    const std::string_view text = std::string_view(source_).substr(at_, end - at_);
    const std::string_view kept = StripBeforeTag(text, modifier, is_print);
    if (!kept.empty()) Emit(Token::Kind::kText, std::string(kept));
    Advance(end - at_);
  }

  static char ModifierOf(std::string_view tag) {
    return tag.size() > 2 && (tag[2] == '-' || tag[2] == '+') ? tag[2] : ' ';
  }

  void LexTextAndTag() {
    const size_t tag = FindTag();
    if (tag == source_.size()) {
      Emit(Token::Kind::kText, std::string(rest()));
      Advance(rest().size());
      return;
    }
    const char kind = source_[tag + 1];
    const char modifier = ModifierOf(std::string_view(source_).substr(tag));
    EmitText(tag, modifier, kind == '{');
    Advance(modifier == ' ' ? 2 : 3);
    if (kind == '#') {
      const size_t end = rest().find("#}");
      if (end == std::string_view::npos) Fail("comment without an end");
      const char end_modifier = end > 0 ? rest()[end - 1] : ' ';
      Advance(end + 2);
      AfterTag(end_modifier, /*is_print=*/false);
    } else if (kind == '%' && TryRaw()) {
      return;
    } else {
      const bool is_print = kind == '{';
      Emit(is_print ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin, "");
      LexExpression(is_print);
    }
  }

  // White space behind a closed tag.
  void AfterTag(char modifier, bool is_print) {
    if (modifier == '-') {
      SkipSpace();
    } else if (modifier != '+' && !is_print && rest().starts_with('\n')) {
      Advance(1);
    }
  }

  // Behind `{%`: takes `raw %} ... {% endraw %}`.
  bool TryRaw() {
    const std::optional<size_t> begin = MatchKeywordTag(at_, "raw");
    if (!begin.has_value()) return false;
    const bool strips = source_[*begin - 3] == '-';
    Advance(*begin - at_);
    if (strips) SkipSpace();
    for (size_t i = at_; (i = source_.find("{%", i)) != std::string::npos; ++i) {
      const char modifier = ModifierOf(std::string_view(source_).substr(i));
      const std::optional<size_t> end = MatchKeywordTag(i + (modifier == ' ' ? 2 : 3), "endraw");
      if (!end.has_value()) continue;
      EmitText(i, modifier, /*is_print=*/false);
      const char end_modifier = source_[*end - 3];
      Advance(*end - at_);
      AfterTag(end_modifier, /*is_print=*/false);
      return true;
    }
    Fail("raw block without endraw");
  }

  // The place behind ` keyword %}` when that stands at `from`.
  std::optional<size_t> MatchKeywordTag(size_t from, std::string_view keyword) const {
    if (from < source_.size()) from += SpaceBytes(from);
    if (std::string_view(source_).substr(from, keyword.size()) != keyword) return std::nullopt;
    from += keyword.size();
    if (from < source_.size()) from += SpaceBytes(from);
    if (from < source_.size() && (source_[from] == '-' || source_[from] == '+')) ++from;
    if (std::string_view(source_).substr(from, 2) != "%}") return std::nullopt;
    return from + 2;
  }

  bool TryEnd(bool is_print) {
    const std::string_view end = is_print ? "}}" : "%}";
    const char modifier = rest()[0] == '-' || rest()[0] == '+' ? rest()[0] : ' ';
    if (modifier == '+' && is_print) return false;
    const size_t offset = modifier == ' ' ? 0 : 1;
    if (rest().substr(offset, 2) != end) return false;
    Emit(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd, "");
    Advance(offset + 2);
    AfterTag(modifier, is_print);
    return true;
  }

  void LexExpression(bool is_print) {
    // Brackets, so that the }} of a dict literal does not end the tag.
    std::vector<char> open;
    for (;;) {
      SkipSpace();
      if (rest().empty()) Fail(is_print ? "{{ without }}" : "{% without %}");
      if (open.empty() && TryEnd(is_print)) return;
      const char c = rest()[0];
      if (IsNameStart(c)) {
        size_t size_bytes = 1;
        while (size_bytes < rest().size() && IsNamePart(rest()[size_bytes]) &&
               LeadingWhiteSpaceBytes(rest().substr(size_bytes)) == 0) {
          ++size_bytes;
        }
        Emit(Token::Kind::kName, std::string(rest().substr(0, size_bytes)));
        Advance(size_bytes);
      } else if (IsDigit(c)) {
        LexNumber();
      } else if (c == '\'' || c == '"') {
        LexString();
      } else {
        LexOperator(&open);
      }
    }
  }

  void LexOperator(std::vector<char>* open) {
    static constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    static constexpr std::string_view kSingles = "+-*/%~<>=()[]{}.,:|";
    for (const std::string_view pair : kPairs) {
      if (!rest().starts_with(pair)) continue;
      Emit(Token::Kind::kOperator, std::string(pair));
      Advance(2);
      return;
    }
    const char c = rest()[0];
    if (kSingles.find(c) == std::string_view::npos) {
      Fail(std::string("unexpected character '") + c + "'");
    }
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c) Fail(std::string("unexpected '") + c + "'");
      open->pop_back();
    }
    Emit(Token::Kind::kOperator, std::string(1, c));
    Advance(1);
  }

  // 0x1F, 0o17 or 0b1, with underscores between: as a decimal number.
  bool TryOtherBase() {
    const std::string_view text = rest();
    if (text.size() < 2 || text[0] != '0') return false;
    const char letter = static_cast<char>(text[1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (base == 0) return false;
    std::string digits;
    size_t end = 2;
    for (size_t at = 2; at < text.size(); ++at) {
      if (text[at] == '_') continue;
      const char lower = static_cast<char>(text[at] | 0x20);
      const int digit = IsDigit(text[at])              ? text[at] - '0'
                        : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                       : -1;
      if (digit < 0 || digit >= base || (text[at - 1] == '_' && at - end > 1)) break;
      digits.push_back(text[at]);
      end = at + 1;
    }
    if (digits.empty()) return false;
    errno = 0;
    const long long number = std::strtoll(digits.c_str(), nullptr, base);
    if (errno == ERANGE) Fail("integer beyond 64 bits");
    Emit(Token::Kind::kInteger, std::to_string(number));
    Advance(end);
    return true;
  }

  void LexNumber() {
    if (TryOtherBase()) return;
    const std::string_view text = rest();
    size_t end = 0;
    const auto take_digits = [&] {
      while (end < text.size() &&
             (IsDigit(text[end]) ||
              (text[end] == '_' && end + 1 < text.size() && IsDigit(text[end + 1])))) {
        ++end;
      }
    };
    bool is_float = false;
    take_digits();
    if (end + 1 < text.size() && text[end] == '.' && IsDigit(text[end + 1])) {
      is_float = true;
      ++end;
      take_digits();
    }
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
      if (exponent < text.size() && IsDigit(text[exponent])) {
        is_float = true;
        end = exponent;
        take_digits();
      }
    }
    std::string digits(text.substr(0, end));
    std::erase(digits, '_');
    Emit(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(digits));
    Advance(end);
  }

  void LexString() {
    const char quote = rest()[0];
    std::string text;
    size_t i = 1;
    for (; i < rest().size() && rest()[i] != quote; ++i) {
      if (rest()[i] != '\\' || i + 1 == rest().size()) {
        text.push_back(rest()[i]);
      } else {
        i = LexEscape(i + 1, &text);
      }
    }
    if (i >= rest().size()) Fail("string without an end");
    Emit(Token::Kind::kString, std::move(text));
    Advance(i + 1);
  }

  // `i` is behind the backslash. Returns the last place taken.
  size_t LexEscape(size_t i, std::string* text) const {
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = rest()[i];
    if (c == '\n') return i;  // a line continued
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      text->push_back(kValues[known]);
      return i;
    }
    size_t digits = 0, from = i + 1;
    uint32_t base = 16;
    if (c == 'x') digits = 2;
    if (c == 'u') digits = 4;
    if (c == 'U') digits = 8;
    if (c >= '0' && c <= '7') {
      base = 8;
      from = i;
      while (digits < 3 && from + digits < rest().size() && rest()[from + digits] >= '0' &&
             rest()[from + digits] <= '7') {
        ++digits;
      }
    }
    if (c == 'N') Fail("a character by its name in a string is not supported");
    if (digits == 0) {
      text->push_back('\\');  // Python keeps an escape that it does not know
      text->push_back(c);
      return i;
    }
    uint32_t code_point = 0;
    for (size_t k = 0; k < digits; ++k) {
      const char d = from + k < rest().size() ? rest()[from + k] : ' ';
      uint32_t value = 99;
      if (IsDigit(d)) value = d - '0';
      if (d >= 'a' && d <= 'f') value = d - 'a' + 10;
      if (d >= 'A' && d <= 'F') value = d - 'A' + 10;
      if (value >= base) Fail("broken escape in a string");
      code_point = code_point * base + value;
      if (code_point > 0x10FFFF) break;
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
      Fail("escape of no character in a string");
    }
    AppendUtf8(code_point, text);
    return from + digits - 1;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_here_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace refrain::engine::jinja
