#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_SCHEMA_CASES_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_SCHEMA_CASES_H_

#include <string>
#include <vector>

namespace refrain::testing {

// A JSON Schema, texts that its grammar takes, and texts that it does not.
struct SchemaCase {
  const char* schema;
  std::vector<std::string> allowed;
  std::vector<std::string> not_allowed;
};

// Fails the test that calls it where one is taken otherwise.
void CheckSchemas(const std::vector<SchemaCase>& cases);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_SCHEMA_CASES_H_
