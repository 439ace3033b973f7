#ifndef REFRAIN_ENGINE_GRAMMAR_STATE_DIGESTS_H_
#define REFRAIN_ENGINE_GRAMMAR_STATE_DIGESTS_H_

#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::engine {

// Grammar::digest of each state. A state goes on as its edges, the states behind them and the
// starts of the rules that it calls say. Where these do not depend on the state in their turn, its
// digest is a hash of theirs. States that depend on each other (loops, rules that call themselves)
// are written down as one graph, numbered from a place that is chosen by what surrounds it, and
// each has the hash of that graph and its number there: equal digests are states of equal graphs.
// States that go on in the same way by different graphs may have different digests.
//
// The hash is SipHash, twice, by a secret of the process: who makes grammars cannot make two states
// of equal digests that go on differently. Pure but for that; linear in the grammar.
std::vector<Grammar::Digest> MakeStateDigests(const Grammar& grammar);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_STATE_DIGESTS_H_
