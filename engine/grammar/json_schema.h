#ifndef REFRAIN_ENGINE_GRAMMAR_JSON_SCHEMA_H_
#define REFRAIN_ENGINE_GRAMMAR_JSON_SCHEMA_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/schema_facts.h"

namespace refrain::engine {

// Draws the rule of the JSON texts that a JSON Schema (2020-12, and what draft 7 spells otherwise)
// allows, in the form in which models are to write them: properties in the order of the schema, and
// enum and const values written without spaces. Where a schema names properties and not
// `additionalProperties`, there are no others, as OpenAI's strict mode and llama.cpp have it; where
// it has prefixItems and not `items` there are no more, and where no minItems says so no fewer.
// Without `type` a value has the types that the keywords are about. Every text that the rule allows
// is valid; not every valid text is allowed.
//
// Understood are
// - type (one or several), enum, const, nullable;
// - anyOf, allOf, $ref within the schema (#, #/..., also to itself), beside other keywords too: all
//   that holds is joined. oneOf, where no text can be of two alternatives: they differ in type, in
//   their values, in a property's constants (which is required then) or in what they require;
// - properties, required, additionalProperties; patternProperties (of one pattern) and
//   propertyNames where no property has a name of its own, or propertyNames lists names;
//   minProperties, maxProperties and unevaluatedProperties where they hold anyway, and
//   minProperties 1;
// - items, prefixItems, minItems, maxItems;
// - minLength, maxLength, pattern (with look-aheads at its begin), format (date, time, date-time,
//   duration, email, hostname, ipv4, ipv6, uri, uuid and others of string_formats.cc; those not
//   known say nothing, nor does one beside a pattern);
// - minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf;
// - $defs, definitions, annotations (title, description, default, examples, $comment, and whatever
//   JSON Schema does not know), which say nothing, and whatever keyword is not about the types that
//   are allowed.
// Any other keyword is refused by name: silently left out it would let wrong values through. With
// SchemaHold::kWhatItCan it is left out, and alternatives of a `oneOf` may overlap. What nobody
// refers to is not looked at.
//
// Pure but for the builder, whose bounds are the schema's; takes time that grows with the schema
// and is bounded where it repeats parts of itself. Failure: INVALID_ARGUMENT naming the keyword's
// place as a JSON pointer ("/properties/age/contains is not supported"), for what is not
// understood, is no schema, leads nowhere, nests deeper than 64 or allows nothing; and what Finish
// says.
absl::StatusOr<RuleId> AddJsonSchema(std::string_view schema_text, JsonRules* rules,
                                     SchemaHold hold = SchemaHold::kAll);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_JSON_SCHEMA_H_
