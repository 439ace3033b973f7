#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_EBNF_GRAMMAR_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_EBNF_GRAMMAR_H_

#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/grammar/ebnf_rules.h"

namespace refrain::testing {

inline absl::StatusOr<engine::Grammar> MakeEbnfGrammar(std::string_view grammar) {
  engine::GrammarBuilder builder;
  const absl::StatusOr<engine::RuleId> root = engine::AddEbnf(grammar, &builder);
  if (!root.ok()) return root.status();
  return std::move(builder).Finish(*root);
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_EBNF_GRAMMAR_H_
