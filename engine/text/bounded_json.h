#ifndef REFRAIN_ENGINE_TEXT_BOUNDED_JSON_H_
#define REFRAIN_ENGINE_TEXT_BOUNDED_JSON_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::engine {

struct JsonBounds {
  int max_depth = 32;  // nesting of arrays and objects
  // Of the values, about: a text of brackets becomes twenty times its size. The largest
  // tokenizer.json in use takes 0.3 GB.
  size_t max_memory_bytes = size_t{1} << 30;
};

// Parses the JSON object in a file that may be anybody's. Of a key that occurs twice in an object
// the last value counts, as for Python. InvalidArgument begins with the file's name: for what is no
// JSON, or no object, and, as soon as that is seen, for what goes beyond the bounds. Pure; any
// thread.
absl::StatusOr<nlohmann::json> ParseBoundedJson(std::string_view file, std::string_view text,
                                                const JsonBounds& bounds = {});

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_BOUNDED_JSON_H_
