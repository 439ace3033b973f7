#ifndef REFRAIN_SERVER_JSON_H_
#define REFRAIN_SERVER_JSON_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::server {

// Objects keep the order of their keys: chat templates show it.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;           // nesting of arrays and objects
  bool allow_comments = false;  // `//` and `/* */`, for configuration files
  // What models write is taken as Python's json.loads takes it, but that integers beyond 64 bits
  // are doubles: of a key that occurs twice the last value counts, numbers beyond a double are
  // infinite, `NaN` and `Infinity` are numbers.
  bool as_python = false;
};

// Parses one JSON text. Linear in its size (nlohmann's own builder of ordered objects is quadratic
// in the number of keys). INVALID_ARGUMENT with line and column for malformed text, ill-formed
// UTF-8, numbers out of range, deeper nesting than the limit, for a key that occurs twice in one
// object, which readers are known to disagree about (but `as_python`), and for a text of so many
// empty values that they would take over 16 MiB and eight times its size. Pure; any thread.
absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// The memory of the values of several texts that belong together: they may take as much as those of
// one text of their size. One thread.
class JsonMemory {
 public:
  void Add(size_t text_bytes, const Json& value);

  size_t bytes() const { return bytes_; }
  size_t most() const;
  bool is_too_much() const { return bytes_ > most(); }

 private:
  size_t text_bytes_ = 0;
  size_t bytes_ = 0;
};

// About how many bytes of memory `value` takes. Linear in the number of values. Pure; any thread.
size_t MemoryOf(const Json& value);

// Appends `utf8` (well-formed) as a JSON string with its quotes, without any line end of Unicode.
void AppendJsonString(std::string_view utf8, std::string* out);

// Appends the shortest decimal that reads back as `value`, a finite number.
void AppendJsonNumber(double value, std::string* out);
void AppendJsonNumber(float value, std::string* out);

// What `value` is called in an error message: "a string", "an integer" and so on.
std::string_view JsonTypeName(const Json& value);

// The integer that `value` is, also when written as 5.0; nothing when it is none or too large.
std::optional<int64_t> IntegerValue(const Json& value);

// A value for an error message: a scalar as JSON has it, a string cut after 64 bytes and then with
// its length; of arrays and objects only what they are.
std::string ShownValue(const Json& value);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_JSON_H_
