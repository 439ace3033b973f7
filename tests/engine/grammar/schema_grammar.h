#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_SCHEMA_GRAMMAR_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_SCHEMA_GRAMMAR_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/grammar/grammar_builder.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/json_schema.h"

namespace refrain::testing {

// The grammar of a JSON Schema alone.
inline absl::StatusOr<engine::Grammar> MakeSchemaGrammar(
    std::string_view schema, engine::SchemaHold hold = engine::SchemaHold::kAll) {
  engine::GrammarBuilder builder;
  engine::JsonRules rules(&builder);
  const absl::StatusOr<engine::RuleId> root = engine::AddJsonSchema(schema, &rules, hold);
  if (!root.ok()) return root.status();
  return std::move(builder).Finish(*root);
}

// Why there is none; empty: there is one.
inline std::string SchemaRefusal(std::string_view schema) {
  return std::string(MakeSchemaGrammar(schema).status().message());
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_SCHEMA_GRAMMAR_H_
