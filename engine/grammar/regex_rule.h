#ifndef REFRAIN_ENGINE_GRAMMAR_REGEX_RULE_H_
#define REFRAIN_ENGINE_GRAMMAR_REGEX_RULE_H_

#include <string_view>

#include "absl/status/status.h"
#include "engine/grammar/json_rules.h"

namespace refrain::engine {

// How a text that a pattern describes stands in the output.
enum class RegexText {
  kPlain,       // as it is; the pattern describes all of it, with anchors or without
  kJsonString,  // inside of a JSON string, without the quotes; as JSON Schema has it, the pattern
                // describes a part of the text where it is not anchored
};

// Draws a regular expression (ECMA-262's, with flag u, as JSON Schema asks for) between two nodes
// of one rule: characters, classes with \d \w \s, groups, alternatives, quantifiers, lazy ones too,
// which make no difference; `.` is any character but a line end. Where flag u would refuse a brace,
// a bracket or an escaped punctuation mark that can mean but one thing, it means that. Anchors only
// where they can but begin or end the text.
//
// In JSON strings printable ASCII is written without `\u`, and is not matched where it is. Draws no
// edge to `from` and none from `to`. What many times repeat is a rule of its own.
//
// Pure but for the builder. Failure: INVALID_ARGUMENT naming what is not understood (look-around,
// back-references, \b, \p, an anchor in the middle) and its place in the pattern, nesting over 64,
// quantifiers over 10,000 or patterns over 65,536 bytes. A pattern may still be too large for the
// builder, or too ambiguous, and one that nothing matches leads nowhere.
absl::Status AddRegex(std::string_view pattern, RegexText text, NodeId from, NodeId to,
                      JsonRules* rules);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_REGEX_RULE_H_
