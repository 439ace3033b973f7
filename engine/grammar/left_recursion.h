#ifndef REFRAIN_ENGINE_GRAMMAR_LEFT_RECURSION_H_
#define REFRAIN_ENGINE_GRAMMAR_LEFT_RECURSION_H_

#include "engine/grammar/grammar.h"

namespace refrain::engine {

// Whether some rule calls itself, directly or through others, before a byte was read: calls of
// rules that may be empty count as nothing read. Pure; linear in the grammar.
bool HasLeftRecursion(const Grammar& grammar);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_LEFT_RECURSION_H_
