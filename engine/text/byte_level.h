#ifndef REFRAIN_ENGINE_TEXT_BYTE_LEVEL_H_
#define REFRAIN_ENGINE_TEXT_BYTE_LEVEL_H_

#include <optional>
#include <string>
#include <string_view>

namespace refrain::engine {

// The alphabet in which byte-level BPE files spell bytes (GPT-2): printable Latin-1 stands for
// itself, the 68 other bytes for U+0100 to U+0143 in order.

// The bytes that `spelling` stands for, or nothing when a character is not of the alphabet.
std::optional<std::string> DecodeByteLevel(std::string_view spelling);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_BYTE_LEVEL_H_
