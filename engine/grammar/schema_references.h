#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_REFERENCES_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_REFERENCES_H_

#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/schema_value.h"

namespace refrain::engine {

// Follows `$ref` within one schema: "#", and "#/..." as a JSON pointer, percent-encoded or not.
// Costs of a step hang on the logarithm of an object's size. One thread. Failure: INVALID_ARGUMENT
// naming the `$ref` and what it asks for.
class SchemaReferences {
 public:
  // `root` outlives it.
  explicit SchemaReferences(const SchemaValue* root) : root_(*root) {}

  const SchemaValue& root() const { return root_; }
  // What the value of a `$ref` stands for.
  absl::StatusOr<const SchemaValue*> Resolve(const SchemaValue& reference);

 private:
  const SchemaValue* StepOrNull(const SchemaValue& from, std::string_view token);

  const SchemaValue& root_;
  // Of the objects that were looked into, by name.
  std::map<const SchemaValue*, std::vector<const SchemaValue::Member*>> sorted_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_REFERENCES_H_
