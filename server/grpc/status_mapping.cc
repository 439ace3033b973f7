#include "server/grpc/status_mapping.h"

#include <string>

#include "absl/strings/ascii.h"
#include "proto/error_details.pb.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

constexpr char kDomain[] = "refrain";

::grpc::StatusCode CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return ::grpc::StatusCode::OK;
    case absl::StatusCode::kCancelled:
      // Who cancelled by going away sees no answer: the server itself is stopping.
      return ::grpc::StatusCode::UNAVAILABLE;
    case absl::StatusCode::kInvalidArgument:
      return ::grpc::StatusCode::INVALID_ARGUMENT;
    case absl::StatusCode::kDeadlineExceeded:
      return ::grpc::StatusCode::DEADLINE_EXCEEDED;
    case absl::StatusCode::kNotFound:
      return ::grpc::StatusCode::NOT_FOUND;
    case absl::StatusCode::kAlreadyExists:
      return ::grpc::StatusCode::ALREADY_EXISTS;
    case absl::StatusCode::kPermissionDenied:
      return ::grpc::StatusCode::PERMISSION_DENIED;
    case absl::StatusCode::kResourceExhausted:
      return ::grpc::StatusCode::RESOURCE_EXHAUSTED;
    case absl::StatusCode::kFailedPrecondition:
      return ::grpc::StatusCode::FAILED_PRECONDITION;
    case absl::StatusCode::kAborted:
      return ::grpc::StatusCode::ABORTED;
    case absl::StatusCode::kOutOfRange:
      return ::grpc::StatusCode::OUT_OF_RANGE;
    case absl::StatusCode::kUnimplemented:
      return ::grpc::StatusCode::UNIMPLEMENTED;
    case absl::StatusCode::kUnavailable:
      return ::grpc::StatusCode::UNAVAILABLE;
    case absl::StatusCode::kUnauthenticated:
      return ::grpc::StatusCode::UNAUTHENTICATED;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kDoNotUseReservedForFutureExpansionUseDefaultInSwitchInstead_:
      break;
  }
  return ::grpc::StatusCode::INTERNAL;
}

}  // namespace

::grpc::Status GrpcStatusOf(const absl::Status& status) {
  if (status.ok()) return ::grpc::Status::OK;
  const ApiError error = ApiErrorFromStatus(status);
  const std::string& message = error.message;
  const ::grpc::StatusCode code = CodeOf(status.code());

  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(absl::AsciiStrToUpper(error.code.value_or(error.type)));
  info.set_domain(kDomain);
  details.add_details()->PackFrom(info);
  if (error.param.has_value()) {
    google::rpc::BadRequest bad;
    auto* const violation = bad.add_field_violations();
    violation->set_field(*error.param);
    violation->set_description(message);
    details.add_details()->PackFrom(bad);
  }
  if (error.retry_after_s.has_value()) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(*error.retry_after_s);
    details.add_details()->PackFrom(retry);
  }
  return ::grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace refrain::server::rpc
