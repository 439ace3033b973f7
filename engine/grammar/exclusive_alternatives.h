#ifndef REFRAIN_ENGINE_GRAMMAR_EXCLUSIVE_ALTERNATIVES_H_
#define REFRAIN_ENGINE_GRAMMAR_EXCLUSIVE_ALTERNATIVES_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_part.h"

namespace refrain::engine {

// What of an alternative of a `oneOf` tells it from the others.
struct Alternative {
  struct Constant {
    std::string_view name;
    std::set<std::string> values;  // ComparableText
    bool is_required = false;
  };

  size_t index = 0;  // in the schema
  TypeSet drawn_types;
  TypeSet valid_types;  // and those of which nothing is drawn although they would be valid
  std::optional<std::set<std::string>> values;  // it has only these (ComparableText)
  // Of an object.
  std::vector<Constant> constants;   // properties with such values, by name
  std::set<std::string_view> names;  // of all properties that are drawn
  std::set<std::string_view> required;
  bool has_others = true;  // beside these
};

// Finds for every two alternatives why a text that is drawn of one is none of the other:
// - they have different types, or different values;
// - a property has different constants; where it is not required, it has to be from now on;
// - each requires a property that is not drawn of the other.
// Returns the names of properties to be required, for each alternative. `preferred` is taken where
// it tells apart (a discriminator); empty: none. INVALID_ARGUMENT when two cannot be told apart,
// naming `place`.
absl::StatusOr<std::vector<std::set<std::string_view>>> TellApart(
    const SchemaValue& place, const std::vector<Alternative>& alternatives,
    std::string_view preferred, SchemaWork* work);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_EXCLUSIVE_ALTERNATIVES_H_
