#ifndef REFRAIN_ENGINE_TEXT_UTF8_H_
#define REFRAIN_ENGINE_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace refrain::engine {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the beginning of a byte string, after table 3-7 of the Unicode standard.
struct Utf8Unit {
  enum class Kind {
    kCharacter,   // a well-formed character of size_bytes
    kIllFormed,   // a maximal ill-formed subpart of size_bytes, one U+FFFD
    kIncomplete,  // the string ends inside of what may become a character
  };
  Kind kind;
  size_t size_bytes;    // at least 1
  uint32_t code_point;  // of a kCharacter
};

// `bytes` is not empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// What stands at the end, of bytes that are not empty; of ill-formed ones the last alone.
Utf8Unit LastUtf8Unit(std::string_view bytes);

bool IsValidUtf8(std::string_view bytes);

// One U+FFFD for each maximal ill-formed subpart, an incomplete end included.
std::string ReplaceIllFormedUtf8(std::string_view bytes);

// Of well-formed UTF-8; in other bytes, how many could begin a character.
size_t CountUtf8Characters(std::string_view bytes);

// `code_point` is a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string* out);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_UTF8_H_
