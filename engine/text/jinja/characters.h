#ifndef REFRAIN_ENGINE_TEXT_JINJA_CHARACTERS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_CHARACTERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// Strings as sequences of characters, as Python has them. Ill-formed bytes count as characters.

size_t CountCharacters(std::string_view utf8);

// Where the character of this number begins, and its bytes; negative: from the end. None beyond.
std::optional<std::pair<size_t, size_t>> FindCharacter(std::string_view utf8, int64_t index);

// Where each character begins, and the end: [characters + 1].
std::vector<size_t> CharacterOffsets(std::string_view utf8);

bool IsWhiteSpace(uint32_t code_point);

// What the methods of Python's str of these names ask of a character.
bool IsAlpha(uint32_t code_point);
bool IsDecimal(uint32_t code_point);
bool IsDigit(uint32_t code_point);
bool IsNumeric(uint32_t code_point);
bool IsAlnum(uint32_t code_point);

// Whether there are characters and all pass.
bool AllCharacters(std::string_view utf8, bool (*passes)(uint32_t code_point));

// Runs of letters, digits and underscores.
size_t CountWords(std::string_view utf8);

// Bytes of the white space character at the begin, or at the end; 0: there is none.
size_t LeadingWhiteSpaceBytes(std::string_view utf8);
size_t TrailingWhiteSpaceBytes(std::string_view utf8);

enum class Side { kLeft, kRight, kBoth };

// Without white space, or without the characters of `unwanted`, at the ends. Marks are kept. What
// is read of `unwanted` is charged, for it may be longer than the text.
Text Strip(const Text& text, Side side);
Text Strip(const Text& text, Side side, std::string_view unwanted, Budget* budget);

// Letter case by the Unicode database, as Python's str has it. Marked as a whole when any byte of
// the input was.
Text ToUpper(const Text& text);
Text ToLower(const Text& text);
Text Capitalize(const Text& text);  // the first character in title case, the others lower
Text ToTitle(const Text& text);     // the first of each run of letters, the others lower
// The first upper, of words that end at white space and - ( { [ <.
Text TitleWords(const Text& text);

bool IsUpper(std::string_view utf8);  // has letters with case, all upper
bool IsLower(std::string_view utf8);

// Marks `bytes` as a whole when `source` has marks: for results that are no cut of their source.
Text MarkedLike(const Text& source, std::string bytes);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_CHARACTERS_H_
