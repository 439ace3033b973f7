#ifndef REFRAIN_ENGINE_GRAMMAR_REGEX_CHARACTERS_H_
#define REFRAIN_ENGINE_GRAMMAR_REGEX_CHARACTERS_H_

#include <optional>

#include "engine/grammar/character_ranges.h"

namespace refrain::engine {

// Of `\d`, `\D`, `\w`, `\W`, `\s` and `\S`, by the letter; none for others.
std::optional<CharacterRanges> FindClass(char letter);
CharacterRanges AllButLineEnds();  // what `.` is

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_REGEX_CHARACTERS_H_
