#include "engine/text/pattern_spelling.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

// White space as the Unicode property says. Not `\s`: PCRE2 counts U+180E among it.
#define REFRAIN_WS \
  "\\t-\\r "       \
  "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
// Oniguruma's: \w of PCRE2 lacks marks, most connectors and the letters in circles, and has all
// numbers; that has six of Latin-1, and those outside of classes alone.
#define REFRAIN_WORD                                     \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}" \
  "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
#define REFRAIN_WORD_ALONE REFRAIN_WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define REFRAIN_AT_WORD "[" REFRAIN_WORD_ALONE "])"

struct EscapeSpelling {
  char escaped;
  const char* members;  // of a class; with `excluded` all but these
  bool excluded;
  const char* alone;
};

constexpr EscapeSpelling kEscapes[] = {
    {'s', REFRAIN_WS, false, "[" REFRAIN_WS "]"},
    {'S', REFRAIN_WS, true, "[^" REFRAIN_WS "]"},
    {'w', REFRAIN_WORD, false, "[" REFRAIN_WORD_ALONE "]"},
    {'W', REFRAIN_WORD, true, "[^" REFRAIN_WORD_ALONE "]"},
    {'h', "0-9A-Fa-f", false, "[0-9A-Fa-f]"},
    {'H', "0-9A-Fa-f", true, "[^0-9A-Fa-f]"},
    {'v', "\\x0B", false, "\\x0B"},
};
constexpr char kWordEnd[] = "(?:(?<=" REFRAIN_AT_WORD "(?!" REFRAIN_AT_WORD "|(?<!" REFRAIN_AT_WORD
                            "(?=" REFRAIN_AT_WORD ")";
constexpr char kNoWordEnd[] = "(?:(?<=" REFRAIN_AT_WORD "(?=" REFRAIN_AT_WORD
                              "|(?<!" REFRAIN_AT_WORD "(?!" REFRAIN_AT_WORD ")";

#undef REFRAIN_AT_WORD
#undef REFRAIN_WORD_ALONE
#undef REFRAIN_WORD
#undef REFRAIN_WS

constexpr int kMaxDepth = 16;         // of classes in classes
constexpr int kMaxIntersected = 128;  // sides of && in a pattern: each lies in the next

const EscapeSpelling* FindEscapeOrNull(char escaped) {
  for (const EscapeSpelling& spelling : kEscapes) {
    if (spelling.escaped == escaped) return &spelling;
  }
  return nullptr;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Whether PCRE2 knows a script of this name.
bool IsScript(std::string_view name) {
  constexpr size_t kLongestName = 64;
  if (name.size() > kLongestName || !std::all_of(name.begin(), name.end(), IsLetter)) return false;
  const std::string pattern = absl::StrCat("\\p{sc:", std::string(name), "}");
  int error_code = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF,
                    &error_code, &error_offset, nullptr);
  pcre2_code_free(code);  // of null too
  return code != nullptr;
}

// The characters of a class: members of one of PCRE2, and parts that are no members there, each a
// pattern of one character.
struct CharacterSet {
  std::string members;
  std::vector<std::string> parts;
  bool negated = false;

  bool IsEmpty() const { return members.empty() && parts.empty(); }

  // One character of the set.
  std::string Pattern() const {
    if (parts.empty()) return absl::StrCat(negated ? "[^" : "[", members, "]");
    std::string any = members.empty() ? "" : absl::StrCat("[", members, "]");
    for (const std::string& part : parts) absl::StrAppend(&any, any.empty() ? "" : "|", part);
    if (negated) return absl::StrCat("(?:(?!", any, ")(?s:.))");
    return absl::StrCat("(?:", any, ")");
  }
};

class Speller {
 public:
  explicit Speller(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Spell() {
    std::string out;
    while (at_ < pattern_.size() && status_.ok()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        SpellEscape(&out);
      } else if (c == '[') {
        ++at_;
        out += ReadClass(1).Pattern();
      } else if (c == '(') {
        SpellGroup(&out);
      } else if (c == '{') {
        SpellInterval(&out);
      } else {
        out.push_back(c);
        ++at_;
      }
    }
    if (!status_.ok()) return status_;
    return out;
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }

  void Fail(std::string_view what) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("pre-tokenizer pattern '", ShownPattern(pattern_), "' at byte ", at_, ": ",
                     std::string(what), " is not supported")));
  }

  // The next `size_bytes` as they are.
  std::string Take(size_t size_bytes) {
    std::string taken(rest().substr(0, size_bytes));
    at_ += taken.size();
    return taken;
  }

  // An escape that means the same in a class and outside, with what stands in braces behind it.
  std::string TakeEscape() {
    constexpr std::string_view kWithBraces = "pPxogkN";
    constexpr size_t kLongest = 256;  // no name has so many bytes
    const char escaped = rest().size() > 1 ? rest()[1] : ' ';
    const size_t end =
        rest().size() > 2 && rest()[2] == '{' && kWithBraces.find(escaped) != std::string_view::npos
            ? rest().substr(0, kLongest).find('}')
            : std::string_view::npos;
    if (end == std::string_view::npos) return Take(2);
    const std::string taken = Take(end + 1);
    if (escaped != 'p' && escaped != 'P') return taken;
    const bool flipped = taken[3] == '^';
    const std::string name = taken.substr(flipped ? 4 : 3, end - (flipped ? 4 : 3));
    if (!IsScript(name)) return taken;
    // Without `sc` PCRE2 takes what other scripts share with this one, too.
    return absl::StrCat(flipped == (escaped == 'P') ? "\\p{sc:" : "\\P{sc:", name, "}");
  }

  void SpellEscape(std::string* out) {
    const char escaped = rest().size() > 1 ? rest()[1] : ' ';
    const EscapeSpelling* const spelling = FindEscapeOrNull(escaped);
    if (spelling == nullptr && escaped != 'b' && escaped != 'B') {
      *out += TakeEscape();
      return;
    }
    *out += spelling != nullptr ? spelling->alone : escaped == 'b' ? kWordEnd : kNoWordEnd;
    at_ += 2;
  }

  // (?m) is what (?s) is here.
  void SpellGroup(std::string* out) {
    const size_t end = rest().find_first_not_of("imsx-", 2);
    const bool has_flags = rest().substr(0, 2) == "(?" && end != std::string_view::npos &&
                           (rest()[end] == ':' || rest()[end] == ')');
    std::string taken = Take(has_flags ? end : 1);
    if (has_flags) std::replace(taken.begin() + 2, taken.end(), 'm', 's');
    *out += taken;
  }

  // {2,3}, {2,}, {,3} and {2}; any other brace is itself.
  void SpellInterval(std::string* out) {
    size_t end = 1;
    while (end < rest().size() && IsDigit(rest()[end])) ++end;
    const std::string_view least = rest().substr(1, end - 1);
    const bool is_exact = end >= rest().size() || rest()[end] != ',';
    if (!is_exact) ++end;
    const size_t most_begin = end;
    while (!is_exact && end < rest().size() && IsDigit(rest()[end])) ++end;
    const std::string_view most = rest().substr(most_begin, end - most_begin);
    if (end >= rest().size() || rest()[end] != '}' || (least.empty() && most.empty())) {
      *out += Take(1);
      return;
    }
    const char behind = end + 1 < rest().size() ? rest()[end + 1] : ' ';
    const bool from_zero = least.empty() || least == "0";
    if (behind == '+') {
      // The interval as a whole comes once or more.
      if (most.empty() && !is_exact) {
        absl::StrAppend(out, "{", std::string(least), ",}");
      } else if (from_zero || least == "1") {
        *out += from_zero ? "*" : "+";
      } else {
        Fail("a repeated interval of two and more");
      }
      at_ += end + 2;
      return;
    }
    if (behind == '?' && is_exact) Fail("'?' behind a fixed number");
    if (least.empty()) {
      absl::StrAppend(out, "{0,", std::string(most), "}");
      at_ += end + 1;
    } else {
      *out += Take(end + 1);
    }
  }

  // Behind the opening bracket; takes the closing one.
  CharacterSet ReadClass(int depth) {
    CharacterSet set;
    std::optional<std::string> others;  // what stands before the last &&
    set.negated = rest().starts_with('^');
    if (set.negated) ++at_;
    const size_t begin = at_;  // where a ] is one of the class
    while (at_ == begin || !rest().starts_with(']')) {
      if (rest().empty()) Fail("a class without an end");
      if (!status_.ok()) return set;
      if (rest().starts_with("&&")) {
        TakeIntersection(&set, &others);
      } else {
        ReadMember(depth, &set);
      }
    }
    if (others.has_value()) TakeIntersection(&set, &others);
    ++at_;
    if (!others.has_value()) return set;
    return {.members = "", .parts = {*std::move(others)}, .negated = set.negated};
  }

  // Moves `set` to `others`, of which only what is in both is left.
  void TakeIntersection(CharacterSet* set, std::optional<std::string>* others) {
    if (set->IsEmpty()) Fail("&& beside nothing");
    if (++intersected_ > kMaxIntersected) Fail("&& so many times");
    if (!status_.ok()) return;
    if (rest().starts_with("&&")) at_ += 2;
    const bool negated = std::exchange(set->negated, false);
    const std::string pattern = set->Pattern();
    *others = others->has_value() ? absl::StrCat("(?:(?=", **others, ")", pattern, ")") : pattern;
    *set = {.members = "", .parts = {}, .negated = negated};
  }

  void ReadMember(int depth, CharacterSet* set) {
    const char c = rest()[0];
    if (c == '[' && rest().substr(1, 1) == ":") {
      constexpr size_t kLongest = 32;  // no name of a class has so many bytes
      if (const size_t end = rest().substr(0, kLongest).find(":]"); end != std::string_view::npos) {
        set->members += Take(end + 2);
        return;
      }
    }
    if (c == '[') {
      ++at_;
      if (depth == kMaxDepth) return Fail("a class in so many classes");
      CharacterSet inner = ReadClass(depth + 1);
      if (inner.parts.empty() && !inner.negated) {
        set->members += inner.members;
      } else {
        set->parts.push_back(inner.Pattern());
      }
    } else if (c == '\\') {
      const EscapeSpelling* const spelling = FindEscapeOrNull(rest().size() > 1 ? rest()[1] : ' ');
      if (spelling == nullptr) {
        set->members += TakeEscape();
        return;
      }
      at_ += 2;
      if (spelling->excluded) {
        set->parts.push_back(absl::StrCat("[^", spelling->members, "]"));
      } else {
        set->members += spelling->members;
      }
    } else {
      // These two would say something else where they come to stand.
      if (c == ']' || c == '^') set->members.push_back('\\');
      set->members += Take(1);
    }
  }

  std::string_view pattern_;
  size_t at_ = 0;
  int intersected_ = 0;  // sides of && so far
  absl::Status status_;
};

}  // namespace

std::string ShownPattern(std::string_view pattern) {
  constexpr size_t kMaxBytes = 96;
  if (pattern.size() <= kMaxBytes) return std::string(pattern);
  size_t end = kMaxBytes;
  while (end > 0 && (static_cast<uint8_t>(pattern[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(std::string(pattern.substr(0, end)), "...");
}

absl::StatusOr<std::string> SpellForPcre2(std::string_view pattern) {
  return Speller(pattern).Spell();
}

}  // namespace refrain::engine
