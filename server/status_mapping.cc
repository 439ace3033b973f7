#include "server/status_mapping.h"

#include <utility>

#include "absl/strings/cord.h"
#include "engine/context_length.h"
#include "engine/retry_after.h"
#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"

namespace refrain::server {
namespace {

// Messages quote what clients sent, of which no megabytes must come back. gRPC's are in the
// trailing metadata up to three times, of which most clients take 8 KiB.
constexpr size_t kMaxMessageBytes = 1000;

constexpr char kParamPayload[] = "refrain/param";
constexpr char kCodePayload[] = "refrain/code";

// For refusals that were not measured; SDKs do not retry without a value.
constexpr int kRetryAfterS = 1;
// A draining server is replaced by another one, which takes longer.
constexpr int kUnavailableRetryAfterS = 5;

// The cut may fall into a character.
std::string Shown(std::string_view text) {
  const std::string well_formed = engine::ReplaceIllFormedUtf8(text.substr(0, kMaxMessageBytes));
  return engine::ReplaceIllFormedUtf8(std::string_view(well_formed).substr(0, kMaxMessageBytes));
}

std::optional<std::string> Payload(const absl::Status& status, const char* name) {
  const auto payload = status.GetPayload(name);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

struct Mapping {
  int http_status;
  const char* type;
  const char* code;  // null: none
  bool hides_message = false;
  int retry_after_s = 0;  // 0: none
};

Mapping MappingOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return {400, "invalid_request_error", nullptr};
    case absl::StatusCode::kUnauthenticated:
      return {401, "invalid_request_error", "invalid_api_key"};
    case absl::StatusCode::kPermissionDenied:
      return {403, "permission_error", "permission_denied"};
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "not_found"};
    case absl::StatusCode::kDeadlineExceeded:
      return {408, "timeout_error", "timeout"};
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return {409, "conflict_error", "conflict"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "overloaded", false, kRetryAfterS};
    case absl::StatusCode::kCancelled:
      // Who cancelled by going away sees no answer: the server itself is stopping.
      return {503, "service_unavailable_error", "cancelled", false, kUnavailableRetryAfterS};
    case absl::StatusCode::kUnimplemented:
      return {501, "not_supported_error", "not_supported"};
    case absl::StatusCode::kUnavailable:
      return {503, "service_unavailable_error", "service_unavailable", false,
              kUnavailableRetryAfterS};
    case absl::StatusCode::kOk:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kDoNotUseReservedForFutureExpansionUseDefaultInSwitchInstead_:
      break;
  }
  return {500, "server_error", "internal_error", true};
}

void AppendMember(std::string_view name, const std::optional<std::string>& value,
                  std::string* out) {
  out->append(name);
  if (value.has_value()) {
    AppendJsonString(*value, out);
  } else {
    out->append("null");
  }
}

}  // namespace

absl::Status WithCode(absl::Status status, std::string_view code) {
  status.SetPayload(kCodePayload, absl::Cord(std::string(code)));
  return status;
}

absl::Status WithParam(absl::Status status, std::string_view param) {
  status.SetPayload(kParamPayload, absl::Cord(std::string(param)));
  return status;
}

std::optional<std::string> ParamOf(const absl::Status& status) {
  return Payload(status, kParamPayload);
}

absl::Status InvalidField(std::string_view param, std::string_view message) {
  return WithParam(absl::InvalidArgumentError(std::string(message)), param);
}

absl::Status UnknownModel(std::string_view asked, std::string_view served) {
  constexpr size_t kShownBytes = 200;
  absl::Status status =
      absl::NotFoundError(Concat("the model '", asked.substr(0, kShownBytes),
                                 "' does not exist; this server has '", served, "'"));
  return WithParam(WithCode(std::move(status), "model_not_found"), "model");
}

ApiError ApiErrorFromStatus(const absl::Status& status) {
  const Mapping mapping = MappingOf(status.code());
  ApiError error;
  error.http_status = mapping.http_status;
  error.type = mapping.type;
  error.message = mapping.hides_message ? "internal error; the server's log has the details"
                                        : Shown(std::string(status.message()));
  error.param = ParamOf(status);
  if (error.param.has_value()) error.param = Shown(*error.param);
  error.code = Payload(status, kCodePayload);
  if (engine::IsContextLengthError(status)) error.code = "context_length_exceeded";
  if (!error.code.has_value() && mapping.code != nullptr) error.code = mapping.code;
  error.retry_after_s = RetryAfterSeconds(status);
  return error;
}

std::optional<int> RetryAfterSeconds(const absl::Status& status) {
  const int fallback_s = MappingOf(status.code()).retry_after_s;
  if (fallback_s == 0) return std::nullopt;
  return engine::RetryAfterOf(status).value_or(fallback_s);
}

std::string ErrorBody(const ApiError& error) {
  std::string body = "{\"error\":{\"message\":";
  // Messages quote what clients sent.
  AppendJsonString(engine::ReplaceIllFormedUtf8(error.message), &body);
  body += ",\"type\":";
  AppendJsonString(error.type, &body);
  AppendMember(",\"param\":", error.param, &body);
  AppendMember(",\"code\":", error.code, &body);
  body += "}}";
  return body;
}

}  // namespace refrain::server
