#ifndef REFRAIN_TOOLS_JSON_FIELDS_H_
#define REFRAIN_TOOLS_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace refrain {

// Fields of an object that a file or a command line gave. INVALID_ARGUMENT names the field when it
// is missing, of another kind or out of range. Pure; any thread.
absl::StatusOr<std::string> StringField(const nlohmann::json& object, const char* field);
absl::StatusOr<double> NumberField(const nlohmann::json& object, const char* field, double least,
                                   double most);
absl::StatusOr<int32_t> CountField(const nlohmann::json& object, const char* field, int32_t least);

// What is wrong with a field, in the same words: INVALID_ARGUMENT.
absl::Status FieldError(const char* field, absl::string_view what);

}  // namespace refrain

#endif  // REFRAIN_TOOLS_JSON_FIELDS_H_
