#include "engine/grammar/schema_part.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/grammar/decimal.h"

namespace refrain::engine {

absl::Status SchemaWork::Do(size_t steps) {
  if (steps <= left_) {
    left_ -= steps;
    return absl::OkStatus();
  }
  left_ = 0;
  return absl::InvalidArgumentError(
      absl::StrCat("the schema is too large where $ref, allOf and anyOf repeat its parts: over ",
                   kMostSteps, " keywords and properties"));
}

absl::StatusOr<int> ReadCount(const SchemaValue& value) {
  if (value.is(SchemaValue::Kind::kNumber)) {
    const Decimal count(value.text);
    if (count.is_integer() && !count.is_negative()) {
      const std::string& digits = count.integer_digits();
      if (digits.size() > 9) return std::numeric_limits<int>::max();
      return digits.empty() ? 0 : std::stoi(digits);
    }
  }
  return SchemaError(value, "is not a non-negative integer");
}

}  // namespace refrain::engine
