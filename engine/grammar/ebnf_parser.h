#ifndef REFRAIN_ENGINE_GRAMMAR_EBNF_PARSER_H_
#define REFRAIN_ENGINE_GRAMMAR_EBNF_PARSER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/character_ranges.h"

namespace refrain::engine {

// Literals alone of more would not fit into GrammarBuilder::Limits.
inline constexpr size_t kMostEbnfBytes = size_t{1} << 17;
inline constexpr int kMostEbnfNesting = 128;  // of parentheses

// A part of a rule.
struct EbnfNode {
  enum class Kind {
    kLiteral,       // text
    kCharacters,    // any one of ranges
    kCall,          // rule
    kSequence,      // the parts, one after the other
    kAlternatives,  // any one of the parts
    kRepetition,    // min to max times the part
  };

  Kind kind;
  std::string text;        // UTF-8
  CharacterRanges ranges;  // ascending, disjoint; may have surrogates among them
  std::vector<EbnfNode> parts;
  size_t rule = 0;  // of EbnfGrammar::rules
  int min = 1;
  std::optional<int> max = 1;  // none: any number
};

struct EbnfRule {
  std::string name;
  size_t line = 0;  // where it begins, from 1
  EbnfNode body{EbnfNode::Kind::kSequence};
};

struct EbnfGrammar {
  std::vector<EbnfRule> rules;  // as they are mentioned
  size_t root = 0;
};

// In quotes; of a long one its begin.
std::string ShownRuleName(std::string_view name);

// Reads a grammar as AddEbnf describes it. Each rule that is called is there.
//
// Pure. Failure: INVALID_ARGUMENT with line and column of what is not understood, and what was
// expected there.
absl::StatusOr<EbnfGrammar> ParseEbnf(std::string_view grammar);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_EBNF_PARSER_H_
