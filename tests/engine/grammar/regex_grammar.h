#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_REGEX_GRAMMAR_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_REGEX_GRAMMAR_H_

#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/grammar/regex_rule.h"

namespace refrain::testing {

// The grammar of a pattern alone.
inline absl::StatusOr<engine::Grammar> MakeRegexGrammar(std::string_view pattern,
                                                        engine::RegexText text) {
  engine::GrammarBuilder builder;
  engine::JsonRules rules(&builder);
  const engine::RuleId root = builder.AddRule();
  const absl::Status status =
      engine::AddRegex(pattern, text, builder.begin(root), builder.end(root), &rules);
  if (!status.ok()) return status;
  return std::move(builder).Finish(root);
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_REGEX_GRAMMAR_H_
