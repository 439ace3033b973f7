#include "tests/engine/grammar/schema_cases.h"

#include <gtest/gtest.h>

#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/schema_grammar.h"

namespace refrain::testing {

void CheckSchemas(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& one : cases) {
    const absl::StatusOr<engine::Grammar> grammar = MakeSchemaGrammar(one.schema);
    ASSERT_TRUE(grammar.ok()) << one.schema << ": " << grammar.status();
    for (const std::string& text : one.allowed) {
      EXPECT_TRUE(Accepts(*grammar, text)) << one.schema << "\n" << text;
    }
    for (const std::string& text : one.not_allowed) {
      EXPECT_FALSE(Accepts(*grammar, text)) << one.schema << "\n" << text;
    }
  }
}

}  // namespace refrain::testing
