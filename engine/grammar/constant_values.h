#ifndef REFRAIN_ENGINE_GRAMMAR_CONSTANT_VALUES_H_
#define REFRAIN_ENGINE_GRAMMAR_CONSTANT_VALUES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/schema_facts.h"

namespace refrain::engine {

// Of the values that `enum` and `const` name, those that the other keywords beside them allow.
// Formats say nothing of them: what StringFormat describes is not all that has the format, and who
// names a value means it. Pure. Failure: INVALID_ARGUMENT where it would take more than types,
// bounds, lengths and multiples of up to 18 digits to say (a pattern beside a string, properties
// beside an object).
absl::StatusOr<std::vector<const SchemaValue*>> AllowedValues(const SchemaFacts& facts);

TypeSet TypeOf(const SchemaValue& value);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_CONSTANT_VALUES_H_
