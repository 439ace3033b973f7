#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_ENTRIES_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_ENTRIES_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/exclusive_alternatives.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema_reader.h"

namespace refrain::engine {

// What schemas say together, and the rule that is drawn of it.
struct SchemaEntry {
  enum class Mark { kNew, kOpen, kDone };

  SchemaParts parts;
  SchemaFacts facts;
  bool is_nothing = false;
  std::vector<std::string> texts;  // of all its values, where it has only some

  // For whoever draws it.
  std::optional<RuleId> rule;             // once it is called
  std::vector<SchemaEntry*> begins_with;  // alternatives that its rule calls before any byte
  Mark mark = Mark::kNew;
};

// The entries of one schema, each made once: schemas that are referred to from many places, and
// from themselves, are one. One thread. Failure: INVALID_ARGUMENT, as AddJsonSchema says.
class SchemaEntries {
 public:
  // `root` outlives it.
  SchemaEntries(const SchemaValue* root, SchemaHold hold) : reader_(root, hold), hold_(hold) {}

  // Stays where it is.
  absl::StatusOr<SchemaEntry*> Find(SchemaParts parts);
  // Of a list of alternatives those that allow anything, with what stands beside the list; at least
  // one. Those of a `oneOf` exclude each other, if all has to hold.
  absl::StatusOr<std::vector<SchemaEntry*>> FindAlternatives(const SchemaEntry& entry,
                                                             const SchemaValue& list);
  // That nothing can be drawn of an entry: an error, but OK for an alternative, beside which others
  // may be left.
  static absl::Status Impossible(const SchemaEntry& entry, std::string_view what);

 private:
  absl::StatusOr<Alternative> Describe(const SchemaEntry& entry, size_t index);

  SchemaReader reader_;
  SchemaHold hold_;
  std::map<SchemaParts, std::unique_ptr<SchemaEntry>> entries_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_ENTRIES_H_
