#include "engine/text/utf8.h"

#include <algorithm>
#include <cstring>

namespace refrain::engine {
namespace {

// What may follow a lead byte: how many bytes, and the range of the second one. The narrow ranges
// keep out overlong forms, surrogates and what lies beyond U+10FFFF.
struct LeadByte {
  size_t size_bytes;  // 0: no lead byte
  uint8_t second_min;
  uint8_t second_max;
};

LeadByte ClassifyLead(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit FirstUtf8Unit(std::string_view bytes) {
  const uint8_t lead = static_cast<uint8_t>(bytes[0]);
  const LeadByte expected = ClassifyLead(lead);
  if (expected.size_bytes == 1) return {Utf8Unit::Kind::kCharacter, 1, lead};
  if (expected.size_bytes == 0) return {Utf8Unit::Kind::kIllFormed, 1, 0};
  uint32_t code_point = lead & (0x7Fu >> expected.size_bytes);
  for (size_t i = 1; i < expected.size_bytes; ++i) {
    if (i == bytes.size()) return {Utf8Unit::Kind::kIncomplete, i, 0};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t min = i == 1 ? expected.second_min : 0x80;
    const uint8_t max = i == 1 ? expected.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Unit::Kind::kIllFormed, i, 0};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Utf8Unit::Kind::kCharacter, expected.size_bytes, code_point};
}

Utf8Unit LastUtf8Unit(std::string_view bytes) {
  constexpr size_t kMaxBytes = 4;
  for (size_t size_bytes = 1; size_bytes <= std::min(kMaxBytes, bytes.size()); ++size_bytes) {
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(bytes.size() - size_bytes));
    if (unit.kind == Utf8Unit::Kind::kCharacter && unit.size_bytes == size_bytes) return unit;
  }
  return {Utf8Unit::Kind::kIllFormed, 1, 0};
}

bool IsValidUtf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    // Eight ASCII bytes at a time: most text is.
    uint64_t word;
    if (at + sizeof(word) <= bytes.size()) {
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return false;
    at += unit.size_bytes;
  }
  return true;
}

std::string ReplaceIllFormedUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(bytes);
    out += unit.kind == Utf8Unit::Kind::kCharacter ? bytes.substr(0, unit.size_bytes)
                                                   : kReplacementCharacter;
    bytes.remove_prefix(unit.size_bytes);
  }
  return out;
}

size_t CountUtf8Characters(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(
      bytes.begin(), bytes.end(), [](unsigned char byte) { return (byte & 0xc0) != 0x80; }));
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace refrain::engine
