#include "server/status_mapping.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/context_length.h"
#include "engine/retry_after.h"

namespace refrain::server {
namespace {

struct Row {
  absl::StatusCode code;
  int http_status;
  const char* type;
  bool retry_after;
  bool shows_message;
};

// Every code there is, so that a new one has to be thought about.
constexpr Row kRows[] = {
    {absl::StatusCode::kCancelled, 503, "service_unavailable_error", true, true},
    {absl::StatusCode::kUnknown, 500, "server_error", false, false},
    {absl::StatusCode::kInvalidArgument, 400, "invalid_request_error", false, true},
    {absl::StatusCode::kDeadlineExceeded, 408, "timeout_error", false, true},
    {absl::StatusCode::kNotFound, 404, "invalid_request_error", false, true},
    {absl::StatusCode::kAlreadyExists, 409, "conflict_error", false, true},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error", false, true},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", true, true},
    {absl::StatusCode::kFailedPrecondition, 400, "invalid_request_error", false, true},
    {absl::StatusCode::kAborted, 409, "conflict_error", false, true},
    {absl::StatusCode::kOutOfRange, 400, "invalid_request_error", false, true},
    {absl::StatusCode::kUnimplemented, 501, "not_supported_error", false, true},
    {absl::StatusCode::kInternal, 500, "server_error", false, false},
    {absl::StatusCode::kUnavailable, 503, "service_unavailable_error", true, true},
    {absl::StatusCode::kDataLoss, 500, "server_error", false, false},
    {absl::StatusCode::kUnauthenticated, 401, "invalid_request_error", false, true},
};

TEST(StatusMapping, CoversEveryCode) {
  for (int code = 1; code <= 16; ++code) {
    const Row& row = kRows[code - 1];
    ASSERT_EQ(static_cast<int>(row.code), code);
    const ApiError error = ApiErrorFromStatus(absl::Status(row.code, "the message"));
    EXPECT_EQ(error.http_status, row.http_status) << code;
    EXPECT_EQ(error.type, row.type) << code;
    EXPECT_EQ(error.retry_after_s.has_value(), row.retry_after) << code;
    EXPECT_EQ(error.message == "the message", row.shows_message) << code;
  }
}

TEST(StatusMapping, CarriesFieldAndCode) {
  const ApiError error =
      ApiErrorFromStatus(WithCode(InvalidField("top_p", "is \"odd\""), "odd_value"));
  EXPECT_EQ(error.param, "top_p");
  EXPECT_EQ(ErrorBody(error), R"({"error":{"message":"is \"odd\"","type":"invalid_request_error",)"
                              R"("param":"top_p","code":"odd_value"}})");
}

// Clients that shorten a conversation look for it.
TEST(StatusMapping, TellsAPromptBeyondTheContextFromOtherWrongRequests) {
  const ApiError error = ApiErrorFromStatus(engine::ContextLengthError("61", 60));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_NE(error.message.find("maximum context length is 60 tokens"), std::string::npos);
}

TEST(StatusMapping, WritesWellFormedUtf8WhateverItQuotes) {
  const ApiError error = ApiErrorFromStatus(absl::InvalidArgumentError("cut \xe2\x82"));
  EXPECT_NE(ErrorBody(error).find("\"cut \xef\xbf\xbd\""), std::string::npos);
}

// A parser's message may quote all of a body of megabytes.
TEST(StatusMapping, GivesNoMoreThanTheBeginningOfALongMessageBack) {
  const ApiError error =
      ApiErrorFromStatus(absl::InvalidArgumentError("wrong: " + std::string(1'000'000, 'x')));
  EXPECT_TRUE(error.message.starts_with("wrong: xxx"));
  EXPECT_LE(error.message.size(), 1000u);
  EXPECT_LE(
      ErrorBody(ApiErrorFromStatus(absl::InvalidArgumentError(std::string(99'999, '\xe2')))).size(),
      1100u);
}

TEST(StatusMapping, WritesNullForWhatIsNotThere) {
  EXPECT_EQ(ErrorBody(ApiErrorFromStatus(absl::InvalidArgumentError("m"))),
            R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}})");
}

// What was measured wins over the default; where coming back is no use nothing is said.
TEST(StatusMapping, TellsWhenToComeBack) {
  EXPECT_EQ(RetryAfterSeconds(absl::ResourceExhaustedError("full")), 1);
  EXPECT_EQ(RetryAfterSeconds(engine::WithRetryAfter(absl::ResourceExhaustedError("full"), 17.2)),
            18);
  EXPECT_EQ(ApiErrorFromStatus(engine::WithRetryAfter(absl::UnavailableError("draining"), 9))
                .retry_after_s,
            9);
  EXPECT_EQ(RetryAfterSeconds(engine::WithRetryAfter(absl::InvalidArgumentError("wrong"), 9)),
            std::nullopt);
}

}  // namespace
}  // namespace refrain::server
