#ifndef REFRAIN_ENGINE_TEXT_JINJA_JSON_H_
#define REFRAIN_ENGINE_TEXT_JINJA_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// JSON text to a value with the order of keys kept, for tests and tools; the server converts its
// own JSON. Refuses malformed text and nesting deeper than 100. Pure; any thread.
absl::StatusOr<Value> ParseJsonValue(std::string_view json);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_JSON_H_
