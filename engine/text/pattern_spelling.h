#ifndef REFRAIN_ENGINE_TEXT_PATTERN_SPELLING_H_
#define REFRAIN_ENGINE_TEXT_PATTERN_SPELLING_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::engine {

// A pattern of tokenizer.json, which is written for Oniguruma, spelled for PCRE2: what compiles
// with both and matches otherwise. White space, word characters and their ends, \h (a hexadecimal
// digit there) and \v, classes in classes and their intersections ([a-z&&[^aeiou]]), scripts, {,n},
// a repeated {1,3}+ (possessive here) and (?m) (the dot takes line ends).
//
// Does not check the rest, which PCRE2 does. Pure; any thread. INVALID_ARGUMENT with the byte for
// what has no spelling.
absl::StatusOr<std::string> SpellForPcre2(std::string_view pattern);

// For a message: of a long one the beginning.
std::string ShownPattern(std::string_view pattern);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_PATTERN_SPELLING_H_
