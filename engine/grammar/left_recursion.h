#ifndef REFRAIN_ENGINE_GRAMMAR_LEFT_RECURSION_H_
#define REFRAIN_ENGINE_GRAMMAR_LEFT_RECURSION_H_

#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::engine {

// Rules that call each other in a circle, each before a byte was read, or one that so calls itself;
// empty where there are none. Calls of rules that may be empty count as nothing read. Pure; linear
// in the grammar.
std::vector<RuleId> FindLeftRecursion(const Grammar& grammar);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_LEFT_RECURSION_H_
