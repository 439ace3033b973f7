#include "tools/json_fields.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace refrain {

using Json = nlohmann::json;

absl::Status FieldError(const char* field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" ", what));
}

absl::StatusOr<std::string> StringField(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return FieldError(field, "is missing");
  if (!found->is_string()) return FieldError(field, "is no string");
  return found->get<std::string>();
}

absl::StatusOr<double> NumberField(const Json& object, const char* field, double least,
                                   double most) {
  const auto found = object.find(field);
  if (found == object.end()) return FieldError(field, "is missing");
  if (!found->is_number()) return FieldError(field, "is no number");
  const double value = found->get<double>();
  if (!(value >= least && value <= most)) {
    return FieldError(field, absl::StrCat("is ", value, ", must be ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<int32_t> CountField(const Json& object, const char* field, int32_t least) {
  const auto value = NumberField(object, field, least, std::numeric_limits<int32_t>::max());
  if (!value.ok()) return value.status();
  if (!object.find(field)->is_number_integer()) return FieldError(field, "is no whole number");
  return static_cast<int32_t>(*value);
}

}  // namespace refrain
