#ifndef REFRAIN_ENGINE_GRAMMAR_REGEX_PARSER_H_
#define REFRAIN_ENGINE_GRAMMAR_REGEX_PARSER_H_

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/character_ranges.h"

namespace refrain::engine {

inline constexpr size_t kMostPatternBytes = size_t{1} << 16;
inline constexpr int kMostPatternNesting = 64;  // of groups
inline constexpr int kMostRepetitions = 10000;  // that a quantifier may name

// A part of a regular expression. Anchors stand only where ParseRegex says.
struct RegexNode {
  enum class Kind {
    kCharacters,    // any one of ranges
    kSequence,      // the parts, one after the other
    kAlternatives,  // any one of the parts
    kRepetition,    // min to max times the part
    kBegin,         // ^
    kEnd,           // $
  };

  Kind kind;
  CharacterRanges ranges;  // ascending, disjoint; may have surrogates among them
  std::vector<RegexNode> parts;
  int min = 1;
  std::optional<int> max = 1;  // none: any number
  // Where in the pattern there is an anchor in it.
  std::optional<size_t> begin_anchor, end_anchor;
};

// Reads a pattern as AddRegex describes it. A `^` stands before all of its sequence but for others,
// `$` behind all of it, in groups too if these stand there; and neither in what is repeated.
//
// Pure. Failure: INVALID_ARGUMENT naming what is not understood, and the byte where it is.
absl::StatusOr<RegexNode> ParseRegex(std::string_view pattern);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_REGEX_PARSER_H_
