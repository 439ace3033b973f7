#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_FACTS_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/number_range.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_value.h"

namespace refrain::engine {

// Schemas that hold together, of one value. Pointers lead into the schema's tree.
struct SchemaParts {
  std::vector<const SchemaValue*> schemas;
  // The lists of alternatives among them (values of `anyOf` and `oneOf`) that are settled: the
  // alternative taken is one of `schemas`.
  std::vector<const SchemaValue*> settled;
  std::vector<std::string_view> required;  // properties that have to be there, besides

  friend auto operator<=>(const SchemaParts&, const SchemaParts&) = default;
};

// What of a schema has to hold.
enum class SchemaHold : uint8_t {
  kAll,       // or it is refused
  kWhatItCan  // what is not supported is left out
};

// What SchemaParts say of a value, keyword by keyword: everything but `settled` alternatives.
struct SchemaFacts {
  struct Property {
    std::string_view name;
    SchemaParts value;
    bool is_required = false;
  };
  // What `then` stands for is not supported, and matters to values of these types.
  struct Unsupported {
    const SchemaValue* place;
    TypeSet applies_to;
  };

  // A regular expression, and where it stands.
  struct Pattern {
    std::string_view text;
    const SchemaValue* place;
  };

  struct Objects {
    bool is_any = true;  // says nothing
    std::vector<Property> properties;
    std::optional<SchemaParts> further_value;     // of other properties; nothing: there are none
    std::optional<Pattern> further_pattern;       // to which their names are held
    std::vector<const SchemaValue*> names;        // to which all names are held
    const SchemaValue* min_properties = nullptr;  // over 0
    const SchemaValue* max_properties = nullptr;
  };
  struct Arrays {
    bool is_any = true;
    std::vector<SchemaParts> first;   // each has its own
    std::optional<SchemaParts> rest;  // of all others; nothing: there are none
    int min_items = 0;
    bool has_all_first = false;  // no minItems says how many of these there are at least
    std::optional<int> max_items;
    const SchemaValue* unique_items = nullptr;  // that are to differ
  };
  struct Strings {
    int min_length = 0;
    std::optional<int> max_length;
    std::vector<Pattern> patterns;
    std::vector<Pattern> formats;  // names of formats that are held
    bool is_any() const {
      return min_length == 0 && !max_length && patterns.empty() && formats.empty();
    }
  };

  const SchemaValue* place = nullptr;  // to be named in messages
  TypeSet types = TypeSet::All();
  TypeSet said_types = TypeSet::All();  // without what keywords mean by themselves
  bool is_nothing = false;              // by `false`
  bool or_null = false;                 // whatever else is said
  bool says_anything = false;           // beside alternatives
  // Lists of alternatives that are not settled.
  std::vector<const SchemaValue*> alternatives;
  std::optional<std::vector<const SchemaValue*>> values;  // of `enum` and `const`
  Objects objects;
  Arrays arrays;
  Strings strings;
  NumberRange numbers;
  std::vector<Unsupported> unsupported;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_FACTS_H_
