#ifndef REFRAIN_ENGINE_GRAMMAR_LOOK_AHEAD_H_
#define REFRAIN_ENGINE_GRAMMAR_LOOK_AHEAD_H_

#include <string>
#include <string_view>
#include <vector>

namespace refrain::engine {

// A pattern without the look-aheads that it begins with: `^(?!\.)(?=.*\d)[a-z]+$` describes what
// `^[a-z]+$` and `^(?:.*\d)` do and `^(?:\.)` does not. Those that stand elsewhere are left in it.
struct PatternParts {
  std::vector<std::string> all_of;  // at least one
  std::vector<std::string> none_of;
};

PatternParts SplitLookAheads(std::string_view pattern);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_LOOK_AHEAD_H_
