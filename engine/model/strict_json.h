#ifndef REFRAIN_ENGINE_MODEL_STRICT_JSON_H_
#define REFRAIN_ENGINE_MODEL_STRICT_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace refrain::engine {

// Parses a JSON object out of an untrusted file: no exceptions, nesting bounded, and a key that
// occurs twice in the outermost object is an error (readers differ in which one they take).
// InvalidArgument begins with `what`.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view what);

// A value out of such an object, fit for an error message: in ASCII, cut after 96 bytes.
std::string ShownJson(const nlohmann::json& value);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_STRICT_JSON_H_
