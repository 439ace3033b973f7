#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_READER_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_READER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/schema_facts.h"
#include "engine/grammar/schema_part.h"
#include "engine/grammar/schema_references.h"

namespace refrain::engine {

// Reads what schemas say: follows `$ref` and `allOf`, and joins what several say of one value.
// Draws nothing, and looks into no value of a property or an item.
//
// What is referred to again and again is read as often, so its work is bounded. One thread.
// Failure: INVALID_ARGUMENT naming the place, as AddJsonSchema says.
class SchemaReader {
 public:
  // `root` outlives it.
  explicit SchemaReader(const SchemaValue* root, SchemaHold hold = SchemaHold::kAll)
      : references_(root), hold_(hold) {}

  // Parts that say the same in fewer words: a schema that is but a `$ref` is what it refers to.
  absl::StatusOr<SchemaParts> Simplify(SchemaParts parts);
  absl::StatusOr<SchemaFacts> Read(const SchemaParts& parts);
  SchemaWork& work() { return work_; }

 private:
  class PartList;

  // What alone a schema says that it refers to; null when it says more, or nothing of that kind.
  absl::StatusOr<const SchemaValue*> StandInOrNull(const SchemaValue& schema);

  // For SchemaHold::kWhatItCan.
  static void LeaveOutUnsupported(SchemaFacts* facts);

  SchemaReferences references_;
  SchemaHold hold_;
  SchemaWork work_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_READER_H_
