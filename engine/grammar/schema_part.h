#ifndef REFRAIN_ENGINE_GRAMMAR_SCHEMA_PART_H_
#define REFRAIN_ENGINE_GRAMMAR_SCHEMA_PART_H_

#include <array>
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/schema_facts.h"

namespace refrain::engine {

// One schema object by its keywords: null where it has one not.
class SchemaPart {
 public:
  explicit SchemaPart(const SchemaValue* schema) : schema_(*schema) {}

  const SchemaValue& schema() const { return schema_; }
  const SchemaValue* operator[](SchemaKeyword keyword) const {
    return values_[static_cast<size_t>(keyword)];
  }
  void Set(SchemaKeyword keyword, const SchemaValue* value) {
    values_[static_cast<size_t>(keyword)] = value;
  }

 private:
  const SchemaValue& schema_;
  std::array<const SchemaValue*, kNumSchemaKeywords> values_{};
};

// Steps of work that are left to whoever reads a schema. INVALID_ARGUMENT beyond them.
class SchemaWork {
 public:
  static constexpr size_t kMostSteps = size_t{1} << 19;

  absl::Status Do(size_t steps);

 private:
  size_t left_ = kMostSteps;
};

// The value of minItems and the like, cut to what an int holds.
absl::StatusOr<int> ReadCount(const SchemaValue& value);

// What several schemas, `parts` of `whole`, say together of an array, and of an object.
absl::Status JoinArrays(std::span<const SchemaPart> parts, SchemaFacts* facts);
absl::Status JoinObjects(const SchemaParts& whole, std::span<const SchemaPart> parts,
                         SchemaWork* work, SchemaFacts* facts);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SCHEMA_PART_H_
