#ifndef REFRAIN_ENGINE_GRAMMAR_REGEX_CHARACTERS_H_
#define REFRAIN_ENGINE_GRAMMAR_REGEX_CHARACTERS_H_

#include <optional>
#include <vector>

#include "engine/grammar/regex_parser.h"

namespace refrain::engine {

using RegexRanges = std::vector<RegexNode::Range>;

// Ascending, with what overlaps or touches put together.
RegexRanges Normalised(RegexRanges ranges);
// All other code points. Of normalised ranges.
RegexRanges Complement(const RegexRanges& ranges);

// Of `\d`, `\D`, `\w`, `\W`, `\s` and `\S`, by the letter; none for others.
std::optional<RegexRanges> FindClass(char letter);
RegexRanges AllButLineEnds();  // what `.` is

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_REGEX_CHARACTERS_H_
