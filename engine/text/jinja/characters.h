#ifndef REFRAIN_ENGINE_TEXT_JINJA_CHARACTERS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_CHARACTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// Strings as sequences of characters, as Python has them. Ill-formed bytes count as characters.

size_t CountCharacters(std::string_view utf8);

// Where each character begins, and the end: [characters + 1].
std::vector<size_t> CharacterOffsets(std::string_view utf8);

bool IsWhiteSpace(uint32_t code_point);

enum class Side { kLeft, kRight, kBoth };

// Without white space, or without the characters of `unwanted`, at the ends. Marks are kept.
Text Strip(const Text& text, Side side);
Text Strip(const Text& text, Side side, std::string_view unwanted);

// Letter case by the Unicode database. Marked as a whole when any byte of the input was.
Text ToUpper(const Text& text);
Text ToLower(const Text& text);
Text Capitalize(const Text& text);  // the first character upper, the others lower
Text ToTitle(const Text& text);     // the first of each run of letters upper, the others lower
Text TitleWords(const Text& text);  // the same with words that end at white space and - ( { [ <

bool IsUpper(std::string_view utf8);  // has letters with case, all upper
bool IsLower(std::string_view utf8);

// Marks `bytes` as a whole when `source` has marks: for results that are no cut of their source.
Text MarkedLike(const Text& source, std::string bytes);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_CHARACTERS_H_
