#include "engine/text/character_class.h"

#include <cstdint>
#include <string>

#include "engine/text/pre_tokenizer.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kBehindSurrogates = 0xE000;

// Unicode's White_Space.
bool IsWhiteSpace(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t SpaceBytes(const Utf8Unit& unit) {
  const bool is_space = unit.kind == Utf8Unit::Kind::kCharacter && IsWhiteSpace(unit.code_point);
  return is_space ? unit.size_bytes : 0;
}

}  // namespace

size_t SpaceBytesAtStart(std::string_view text) {
  return text.empty() ? 0 : SpaceBytes(FirstUtf8Unit(text));
}

size_t SpaceBytesAtEnd(std::string_view text) {
  return text.empty() ? 0 : SpaceBytes(LastUtf8Unit(text));
}

absl::StatusOr<WordCharacters> WordCharacters::Create() {
  // The pre-tokenizer's \w is Oniguruma's, which lacks the two joiners alone.
  const std::string pattern = "[\\w\\x{200C}\\x{200D}]+";
  const auto words = PreTokenizer::CreateFromPatterns({&pattern, 1});
  if (!words.ok()) return words.status();
  std::string all;
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    if (c == kFirstSurrogate) c = kBehindSurrogates;
    AppendUtf8(c, &all);
  }
  WordCharacters created;
  created.is_word_.reserve(kCodePoints);
  // Matches and gaps take turns; U+0000 is in a gap.
  bool is_word = false;
  absl::Status status = (*words)->Split(all, [&](std::string_view piece) {
    for (size_t left = CountUtf8Characters(piece); left > 0; --left) {
      if (created.is_word_.size() == kFirstSurrogate) created.is_word_.resize(kBehindSurrogates);
      created.is_word_.push_back(is_word);
    }
    is_word = !is_word;
    return true;
  });
  if (!status.ok()) return status;
  return created;
}

bool WordCharacters::BeginWord(std::string_view text) const {
  if (text.empty()) return false;
  const Utf8Unit unit = FirstUtf8Unit(text);
  return unit.kind == Utf8Unit::Kind::kCharacter && is_word_[unit.code_point];
}

bool WordCharacters::EndWord(std::string_view text) const {
  if (text.empty()) return false;
  const Utf8Unit unit = LastUtf8Unit(text);
  return unit.kind == Utf8Unit::Kind::kCharacter && is_word_[unit.code_point];
}

}  // namespace refrain::engine
