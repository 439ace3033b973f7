#include "engine/text/byte_level.h"

#include <array>
#include <cstdint>

#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr bool StandsForItself(uint32_t code_point) {
  return (code_point >= 0x21 && code_point <= 0x7E) || (code_point >= 0xA1 && code_point <= 0xAC) ||
         (code_point >= 0xAE && code_point <= 0xFF);
}

// Code point - 0x100 to byte.
constexpr std::array<uint8_t, 68> kMovedBytes = [] {
  std::array<uint8_t, 68> bytes = {};
  size_t count = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!StandsForItself(byte)) bytes[count++] = static_cast<uint8_t>(byte);
  }
  return bytes;
}();

}  // namespace

std::optional<std::string> DecodeByteLevel(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  while (!spelling.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(spelling);
    if (unit.kind != Utf8Unit::Kind::kCharacter) return std::nullopt;
    if (unit.code_point < 0x100 && StandsForItself(unit.code_point)) {
      bytes.push_back(static_cast<char>(unit.code_point));
    } else if (unit.code_point >= 0x100 && unit.code_point < 0x100 + kMovedBytes.size()) {
      bytes.push_back(static_cast<char>(kMovedBytes[unit.code_point - 0x100]));
    } else {
      return std::nullopt;
    }
    spelling.remove_prefix(unit.size_bytes);
  }
  return bytes;
}

}  // namespace refrain::engine
