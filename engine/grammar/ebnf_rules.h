#ifndef REFRAIN_ENGINE_GRAMMAR_EBNF_RULES_H_
#define REFRAIN_ENGINE_GRAMMAR_EBNF_RULES_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// Draws a grammar that a client states, in the EBNF that llama.cpp (GBNF) and XGrammar share.
// Returns its rule `root`, which describes the whole text.
//
//   root ::= item ("," item)*        # a comment, up to the line's end
//   item ::= [a-z_] [^,\n]{0,20}
//          | "\"" (. | "\u00e9")+ "\""
//
// A rule begins on a line of its own, with its name (letters, digits, - and _) and `::=`, and ends
// where the next one begins: line ends mean nothing else, which is XGrammar's way, and reads what
// llama.cpp reads as it does. Alternatives may be empty. `.` is any character, line ends too. Of
// escapes each dialect's own are taken: letters as in C, \xHH, \uHHHH (pairs of surrogates too),
// \UHHHHHHHH, any punctuation. Counts are kept as they are stated, where llama.cpp takes those over
// 2,000 for any number.
//
// A rule may begin with itself: `sum ::= sum "+" n | n` is drawn as n ("+" n)*. One that comes back
// to itself before a byte through other rules, or behind what may be empty, is left to Finish,
// which refuses it by its name. Rules that nothing calls are drawn for nothing.
//
// Pure but for the builder. Failure: INVALID_ARGUMENT with line and column for what is not
// understood, rules that are not there or twice, parentheses over kMostEbnfNesting, quantifiers
// over kMostEbnfRepetitions; grammars over kMostEbnfBytes. One may still be too large for the
// builder, or be satisfied by nothing.
absl::StatusOr<RuleId> AddEbnf(std::string_view grammar, GrammarBuilder* builder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_EBNF_RULES_H_
