#include "engine/text/jinja/characters.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/hash_map.h"
#include "engine/text/utf8.h"

namespace refrain::engine::jinja {
namespace {

// Every stride-th code point of [first, last] maps to itself plus delta.
struct Range {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};

struct Interval {
  uint32_t first;
  uint32_t last;
};

struct Expansion {
  uint32_t from;
  uint32_t to[3];  // 0: unused
};

#include "engine/text/jinja/letter_and_digit_tables.inc"
#include "engine/text/jinja/letter_case_tables.inc"
#include "engine/text/jinja/title_case_tables.inc"

bool IsAsciiDigit(uint32_t code_point) { return code_point >= '0' && code_point <= '9'; }

template <size_t n>
bool Holds(const Interval (&intervals)[n], uint32_t code_point) {
  const Interval* const interval =
      std::partition_point(std::begin(intervals), std::end(intervals),
                           [code_point](const Interval& i) { return i.last < code_point; });
  return interval != std::end(intervals) && interval->first <= code_point;
}

uint32_t MapByRanges(const Range* begin, const Range* end, uint32_t code_point) {
  const Range* range = std::partition_point(
      begin, end, [code_point](const Range& r) { return r.last < code_point; });
  // Ranges of stride 2 may interleave: the next ones may begin before this one ends.
  for (; range != end && range->first <= code_point; ++range) {
    if ((code_point - range->first) % range->stride == 0) return code_point + range->delta;
  }
  return code_point;
}

uint32_t LowerOf(uint32_t code_point) {
  if (code_point < 0x80) {
    return code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point;
  }
  if (code_point == 0x130) return 'i';  // and a dot, see AppendLower
  return MapByRanges(std::begin(kLowerRanges), std::end(kLowerRanges), code_point);
}

uint32_t SimpleUpperOf(uint32_t code_point) {
  if (code_point < 0x80) {
    return code_point >= 'a' && code_point <= 'z' ? code_point - 32 : code_point;
  }
  return MapByRanges(std::begin(kUpperRanges), std::end(kUpperRanges), code_point);
}

template <size_t n>
const Expansion* FindOrNull(const Expansion (&expansions)[n], uint32_t code_point) {
  if (code_point < 0x80) return nullptr;
  const Expansion* const it = std::lower_bound(
      std::begin(expansions), std::end(expansions), code_point,
      [](const Expansion& expansion, uint32_t wanted) { return expansion.from < wanted; });
  return it != std::end(expansions) && it->from == code_point ? it : nullptr;
}

const Expansion* ExpansionOrNull(uint32_t code_point) {
  return FindOrNull(kUpperExpansions, code_point);
}

void AppendParts(const Expansion& expansion, std::string* out) {
  for (const uint32_t part : expansion.to) {
    if (part != 0) AppendUtf8(part, out);
  }
}

void AppendUpper(uint32_t code_point, std::string* out) {
  if (const Expansion* expansion = ExpansionOrNull(code_point)) {
    return AppendParts(*expansion, out);
  }
  AppendUtf8(SimpleUpperOf(code_point), out);
}

void AppendTitle(uint32_t code_point, std::string* out) {
  if (const Expansion* expansion = FindOrNull(kTitleExpansions, code_point)) {
    return AppendParts(*expansion, out);
  }
  AppendUpper(code_point, out);
}

bool HasCase(uint32_t code_point) {
  return LowerOf(code_point) != code_point || SimpleUpperOf(code_point) != code_point ||
         ExpansionOrNull(code_point) != nullptr;
}

// Where the last character of a text that is not empty begins.
size_t LastCharacterByte(std::string_view utf8) {
  size_t last = utf8.size() - 1;
  while (last > 0 && utf8.size() - last < 4 && (static_cast<uint8_t>(utf8[last]) & 0xC0) == 0x80) {
    --last;
  }
  return last;
}

// Whether a letter with case stands at the begin (or the end) of the text, behind characters that
// the rule of the final sigma looks past.
bool LetterWithCaseFollows(std::string_view utf8, bool at_end) {
  while (!utf8.empty()) {
    const size_t begin = at_end ? LastCharacterByte(utf8) : 0;
    const Utf8Unit unit = FirstUtf8Unit(utf8.substr(begin));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return false;
    if (!Holds(kCaseIgnorable, unit.code_point)) return HasCase(unit.code_point);
    at_end ? utf8.remove_suffix(utf8.size() - begin) : utf8.remove_prefix(unit.size_bytes);
  }
  return false;
}

// The lower-case form of the character at `at_byte`. A sigma that ends a word has one of its own;
// `word` is what the rule looks at.
void AppendLower(uint32_t code_point, std::string_view word, size_t at_byte, std::string* out) {
  constexpr uint32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;
  constexpr size_t kSigmaBytes = 2;
  if (code_point == kSigma) {
    const bool is_final = LetterWithCaseFollows(word.substr(0, at_byte), /*at_end=*/true) &&
                          !LetterWithCaseFollows(word.substr(at_byte + kSigmaBytes),
                                                 /*at_end=*/false);
    AppendUtf8(is_final ? kFinalSigma : kSmallSigma, out);
  } else if (code_point == 0x130) {
    *out += "i\xCC\x87";  // the one lower-case form of two characters
  } else {
    AppendUtf8(LowerOf(code_point), out);
  }
}

// Calls `visit` with the unit and its bytes, for every character.
template <typename Visit>
void ForEachUnit(std::string_view utf8, Visit visit) {
  while (!utf8.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(utf8);
    visit(unit, utf8.substr(0, unit.size_bytes));
    utf8.remove_prefix(unit.size_bytes);
  }
}

// `append` gets each character and where it begins.
template <typename Append>
Text MapCharacters(const Text& text, Append append) {
  std::string out;
  out.reserve(text.size());
  ForEachUnit(text.bytes(), [&](const Utf8Unit& unit, std::string_view bytes) {
    if (unit.kind == Utf8Unit::Kind::kCharacter) {
      append(unit.code_point, static_cast<size_t>(bytes.data() - text.bytes().data()), &out);
    } else {
      out += bytes;
    }
  });
  return MarkedLike(text, std::move(out));
}

template <typename IsUnwanted>
Text StripIf(const Text& text, Side side, IsUnwanted is_unwanted) {
  std::string_view rest = text.bytes();
  size_t begin = 0;
  while (side != Side::kRight && !rest.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(rest);
    if (!is_unwanted(rest.substr(0, unit.size_bytes), unit.code_point)) break;
    begin += unit.size_bytes;
    rest.remove_prefix(unit.size_bytes);
  }
  while (side != Side::kLeft && !rest.empty()) {
    const std::string_view bytes = rest.substr(LastCharacterByte(rest));
    if (!is_unwanted(bytes, FirstUtf8Unit(bytes).code_point)) break;
    rest.remove_suffix(bytes.size());
  }
  return text.Substr(begin, rest.size());
}

}  // namespace

size_t CountCharacters(std::string_view utf8) {
  if (IsValidUtf8(utf8)) {
    return std::count_if(utf8.begin(), utf8.end(),
                         [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  }
  size_t count = 0;
  ForEachUnit(utf8, [&](const Utf8Unit&, std::string_view) { ++count; });
  return count;
}

std::optional<std::pair<size_t, size_t>> FindCharacter(std::string_view utf8, int64_t index) {
  if (index < 0) index += static_cast<int64_t>(CountCharacters(utf8));
  if (index < 0) return std::nullopt;
  for (size_t at = 0; at < utf8.size(); --index) {
    const size_t size_bytes = FirstUtf8Unit(utf8.substr(at)).size_bytes;
    if (index == 0) return std::pair(at, size_bytes);
    at += size_bytes;
  }
  return std::nullopt;
}

std::vector<size_t> CharacterOffsets(std::string_view utf8) {
  std::vector<size_t> offsets;
  size_t at = 0;
  ForEachUnit(utf8, [&](const Utf8Unit& unit, std::string_view) {
    offsets.push_back(at);
    at += unit.size_bytes;
  });
  offsets.push_back(at);
  return offsets;
}

bool IsWhiteSpace(uint32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x20) ||
         code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

bool IsAlpha(uint32_t code_point) {
  if (code_point >= 0x80) return Holds(kLetters, code_point);
  const uint32_t lower = code_point | 0x20;
  return lower >= 'a' && lower <= 'z';
}

bool IsDecimal(uint32_t code_point) {
  return code_point < 0x80 ? IsAsciiDigit(code_point) : Holds(kDecimals, code_point);
}

bool IsDigit(uint32_t code_point) {
  return code_point < 0x80 ? IsAsciiDigit(code_point) : Holds(kDigits, code_point);
}

bool IsNumeric(uint32_t code_point) {
  return code_point < 0x80 ? IsAsciiDigit(code_point) : Holds(kNumerics, code_point);
}

bool IsAlnum(uint32_t code_point) { return IsAlpha(code_point) || IsNumeric(code_point); }

bool AllCharacters(std::string_view utf8, bool (*passes)(uint32_t code_point)) {
  bool all = !utf8.empty();
  ForEachUnit(utf8, [&](const Utf8Unit& unit, std::string_view) {
    all = all && unit.kind == Utf8Unit::Kind::kCharacter && passes(unit.code_point);
  });
  return all;
}

size_t CountWords(std::string_view utf8) {
  size_t count = 0;
  bool in_word = false;
  ForEachUnit(utf8, [&](const Utf8Unit& unit, std::string_view) {
    const bool is_word = unit.kind == Utf8Unit::Kind::kCharacter &&
                         (unit.code_point == '_' || IsAlnum(unit.code_point));
    if (is_word && !in_word) ++count;
    in_word = is_word;
  });
  return count;
}

size_t LeadingWhiteSpaceBytes(std::string_view utf8) {
  if (utf8.empty()) return 0;
  const Utf8Unit unit = FirstUtf8Unit(utf8);
  const bool is_space = unit.kind == Utf8Unit::Kind::kCharacter && IsWhiteSpace(unit.code_point);
  return is_space ? unit.size_bytes : 0;
}

size_t TrailingWhiteSpaceBytes(std::string_view utf8) {
  size_t size_bytes = std::min<size_t>(utf8.size(), 1);
  while (size_bytes < utf8.size() && size_bytes < 4 &&
         (static_cast<uint8_t>(utf8[utf8.size() - size_bytes]) & 0xC0) == 0x80) {
    ++size_bytes;
  }
  const std::string_view last = utf8.substr(utf8.size() - size_bytes);
  return LeadingWhiteSpaceBytes(last) == last.size() ? last.size() : 0;
}

Text Strip(const Text& text, Side side) {
  return StripIf(text, side,
                 [](std::string_view, uint32_t code_point) { return IsWhiteSpace(code_point); });
}

Text Strip(const Text& text, Side side, std::string_view unwanted, Budget* budget) {
  if (text.size() == 0) return text;
  budget->Bytes(4 * unwanted.size());
  HashSet<std::string_view> characters;  // each once: there may be many
  ForEachUnit(unwanted, [&](const Utf8Unit&, std::string_view bytes) { characters.insert(bytes); });
  return StripIf(text, side,
                 [&](std::string_view bytes, uint32_t) { return characters.contains(bytes); });
}

Text ToUpper(const Text& text) {
  return MapCharacters(
      text, [](uint32_t code_point, size_t, std::string* out) { AppendUpper(code_point, out); });
}

Text ToLower(const Text& text) {
  return MapCharacters(text, [&](uint32_t code_point, size_t at, std::string* out) {
    AppendLower(code_point, text.bytes(), at, out);
  });
}

Text Capitalize(const Text& text) {
  return MapCharacters(text, [&](uint32_t code_point, size_t at, std::string* out) {
    at == 0 ? AppendTitle(code_point, out) : AppendLower(code_point, text.bytes(), at, out);
  });
}

Text ToTitle(const Text& text) {
  bool in_word = false;
  return MapCharacters(text, [&](uint32_t code_point, size_t at, std::string* out) {
    in_word ? AppendLower(code_point, text.bytes(), at, out) : AppendTitle(code_point, out);
    in_word = HasCase(code_point);
  });
}

Text TitleWords(const Text& text) {
  bool in_word = false;
  size_t rest = 0;  // where what follows the word's first character begins
  return MapCharacters(text, [&](uint32_t code_point, size_t at, std::string* out) {
    if (in_word) {
      AppendLower(code_point, std::string_view(text.bytes()).substr(rest), at - rest, out);
    } else {
      AppendUpper(code_point, out);
      rest = at + FirstUtf8Unit(std::string_view(text.bytes()).substr(at)).size_bytes;
    }
    in_word = !IsWhiteSpace(code_point) && code_point != '-' && code_point != '(' &&
              code_point != '{' && code_point != '[' && code_point != '<';
  });
}

bool IsUpper(std::string_view utf8) {
  bool has_case = false, all = true;
  ForEachUnit(utf8, [&](const Utf8Unit& unit, std::string_view) {
    if (!HasCase(unit.code_point)) return;
    has_case = true;
    all = all && LowerOf(unit.code_point) != unit.code_point;
  });
  return has_case && all;
}

bool IsLower(std::string_view utf8) {
  bool has_case = false, all = true;
  ForEachUnit(utf8, [&](const Utf8Unit& unit, std::string_view) {
    if (!HasCase(unit.code_point)) return;
    has_case = true;
    all = all && LowerOf(unit.code_point) == unit.code_point;
  });
  return has_case && all;
}

Text MarkedLike(const Text& source, std::string bytes) {
  return Text(std::move(bytes), source.HasMarks());
}

}  // namespace refrain::engine::jinja
