#include "engine/text/composed_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr char32_t kFirstMark = 0x300;  // no character before it is changed, or changes another one
constexpr size_t kPartBytes = 256;
constexpr size_t kMaxDecomposed = 4;  // characters of one in canonical decomposition

bool IsMark(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class != 0;
}

// Canonical decomposition, then order, then composition (UAX 15, section 1.3). utf8proc_map orders
// marks in time quadratic in their number, so they are sorted here.
class PartComposer {
 public:
  void Append(std::string_view part, std::string* out) {
    characters_.clear();
    for (size_t at = 0; at < part.size();) {
      const Utf8Unit unit = FirstUtf8Unit(part.substr(at));
      Decompose(static_cast<utf8proc_int32_t>(unit.code_point));
      at += unit.size_bytes;
    }
    SortMarks();
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        characters_.data(), static_cast<utf8proc_ssize_t>(characters_.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    assert(count >= 0);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      AppendUtf8(static_cast<uint32_t>(characters_[i]), out);
    }
  }

 private:
  void Decompose(utf8proc_int32_t code_point) {
    const size_t size = characters_.size();
    characters_.resize(size + kMaxDecomposed);
    int last_boundary_class = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code_point, characters_.data() + size, kMaxDecomposed,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &last_boundary_class);
    assert(count >= 0 && count <= static_cast<utf8proc_ssize_t>(kMaxDecomposed));
    characters_.resize(size + static_cast<size_t>(count));
  }

  void SortMarks() {
    for (auto at = characters_.begin(); at != characters_.end();) {
      at = std::find_if(at, characters_.end(), IsMark);
      const auto end = std::find_if_not(at, characters_.end(), IsMark);
      std::stable_sort(at, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
        return utf8proc_get_property(a)->combining_class <
               utf8proc_get_property(b)->combining_class;
      });
      at = end;
    }
  }

  std::vector<utf8proc_int32_t> characters_;  // UTF-32
};

// Behind at least kPartBytes of `text`, where it may be cut.
size_t PartEnd(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = FirstUtf8Unit(text.substr(at));
    if (at >= kPartBytes && BeginsComposition(unit.code_point)) return at;
    at += unit.size_bytes;
  }
  return text.size();
}

}  // namespace

bool BeginsComposition(char32_t code_point) {
  if (code_point < kFirstMark) return true;
  // What joins a character before it is a mark, or a vowel or final consonant of Hangul.
  if (code_point >= 0x1100 && code_point < 0x1200) return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_PO:
    case UTF8PROC_CATEGORY_SO:
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_ZS:
      return true;
    default:
      return false;
  }
}

std::string_view ComposeText(std::string_view utf8, EncodePace* pace, std::string* storage) {
  // The first byte of U+0300 and of all behind it is CC or greater.
  const auto is_above = [](char c) { return static_cast<uint8_t>(c) >= 0xCC; };
  if (std::none_of(utf8.begin(), utf8.end(), is_above)) return utf8;
  storage->clear();
  storage->reserve(utf8.size());
  PartComposer composer;
  while (!utf8.empty()) {
    const std::string_view part = utf8.substr(0, PartEnd(utf8));
    if (pace != nullptr) {
      pace->Did(part.size());
      if (pace->stopped()) break;
    }
    if (std::none_of(part.begin(), part.end(), is_above)) {
      storage->append(part);
    } else {
      composer.Append(part, storage);
    }
    utf8.remove_prefix(part.size());
  }
  return *storage;
}

}  // namespace refrain::engine
