#ifndef REFRAIN_SERVER_OPENAI_FIELD_READER_H_
#define REFRAIN_SERVER_OPENAI_FIELD_READER_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/json.h"
#include "server/request_limits.h"

namespace refrain::server::openai {

// Reads the members of one JSON object by name, type and range. An absent member and `null` are the
// same: nothing. The first thing that is wrong is kept as the status, later reads go on, so that a
// caller may check once at the end:
//
//   FieldReader fields(body, "");
//   request.top_p = fields.Number("top_p", {0, 1}).value_or(1);
//   if (!fields.status().ok()) return fields.status();
//
// Remembers which names were asked for. With `schemas` it also writes down what each of them may
// be, so that the description of the API is what the parser does. Not thread safe; the object
// outlives it.
class FieldReader {
 public:
  // Name and JSON schema of each field, in the order of asking.
  using Schemas = std::vector<std::pair<std::string, std::string>>;

  // `object` is a JSON object; `prefix` ("messages[2].") is put before names in errors.
  FieldReader(const Json& object, std::string_view prefix, Schemas* schemas = nullptr);

  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name, Range range);
  std::optional<double> Number(std::string_view name, Range range);
  std::optional<std::string> String(std::string_view name, size_t max_characters = SIZE_MAX);
  const Json* ObjectOrNull(std::string_view name);
  const Json* ArrayOrNull(std::string_view name);
  // Whatever its type, but not null.
  const Json* AnyOrNull(std::string_view name);
  // Known, and of no effect here.
  void Ignore(std::string_view name) { AnyOrNull(name); }

  // What `name` may be, where its type and range do not say all; stands for what reading it says.
  void Describe(std::string_view name, std::string schema);
  bool describes() const { return schemas_ != nullptr; }

  // Records that `name` is wrong; the first one counts.
  void Refuse(std::string_view name, std::string_view problem);
  void Fail(const absl::Status& status);

  const absl::Status& status() const { return status_; }
  std::vector<std::string> UnknownNames() const;

 private:
  const Json* Find(std::string_view name);
  void RefuseType(std::string_view name, const Json& value, std::string_view expected);

  const Json& object_;
  std::string prefix_;
  absl::Status status_;
  std::set<std::string, std::less<>> known_;
  Schemas* schemas_;
};

// Whether a request's body is what a FieldReader reads.
absl::Status CheckIsObject(const Json& body);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_FIELD_READER_H_
