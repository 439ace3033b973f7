#ifndef REFRAIN_SERVER_STATUS_MAPPING_H_
#define REFRAIN_SERVER_STATUS_MAPPING_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::server {

// An error as HTTP clients see it: status line, and the members of OpenAI's error object.
struct ApiError {
  int http_status = 500;
  std::string type;
  std::string message;
  std::optional<std::string> param;  // the request field that is wrong
  std::optional<std::string> code;
  std::optional<int> retry_after_s;
};

// INVALID_ARGUMENT about one field of a request.
absl::Status InvalidField(std::string_view param, std::string_view message);

// NOT_FOUND: `asked` is not the model that is served.
absl::Status UnknownModel(std::string_view asked, std::string_view served);

// Attaches what OpenAI calls `code` and `param` to a status.
absl::Status WithCode(absl::Status status, std::string_view code);
absl::Status WithParam(absl::Status status, std::string_view param);
std::optional<std::string> ParamOf(const absl::Status& status);

// The one place where a status becomes an HTTP answer; gRPC has its own. INTERNAL, DATA_LOSS and
// UNKNOWN keep their message to themselves (it may show internals): the caller logs it. `status` is
// not OK. Pure; any thread.
ApiError ApiErrorFromStatus(const absl::Status& status);

// When the caller may come back: what the status says itself (engine::WithRetryAfter: measured),
// else a default for refusals that pass by themselves; none for others. For gRPC's RetryInfo too.
std::optional<int> RetryAfterSeconds(const absl::Status& status);

// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string ErrorBody(const ApiError& error);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_STATUS_MAPPING_H_
