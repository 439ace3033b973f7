#include "engine/request_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace refrain::engine {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::function<void(Request&)> change;
  const char* message;
};

TEST(RequestChecksTest, DefaultsAreValid) {
  EXPECT_EQ(CheckRequest({}, {.max_choices = 1, .vocab_size = 10}), absl::OkStatus());
}

TEST(RequestChecksTest, NamesFieldValueAndLimit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {[](Request& r) { r.n = 0; }, "n is 0, must be from 1 to 4"},
      {[](Request& r) { r.n = 5; }, "n is 5, must be from 1 to 4"},
      {[](Request& r) { r.sampling.temperature = -1; }, "temperature is -1"},
      {[&](Request& r) { r.sampling.temperature = nan; }, "temperature is nan"},
      {[](Request& r) { r.sampling.top_p = 0; }, "top_p is 0"},
      {[&](Request& r) { r.sampling.top_p = nan; }, "top_p is nan"},
      {[](Request& r) { r.sampling.min_p = 1; }, "min_p is 1"},
      {[](Request& r) { r.sampling.top_k = -1; }, "top_k is -1"},
      {[](Request& r) { r.sampling.repetition_penalty = 0; }, "repetition_penalty is 0"},
      {[](Request& r) {
         r.sampling.logit_bias = {{TokenId{10}, 1.0f}};
       },
       "logit_bias is 10"},
      {[](Request& r) { r.sampling.allowed_tokens = {TokenId{-1}}; }, "allowed_tokens is -1"},
      {[](Request& r) { r.stop.max_tokens = -1; }, "max_tokens is -1"},
      {[](Request& r) { r.stop.min_tokens = 17; }, "min_tokens is 17"},
      {[](Request& r) { r.stop.stop_token_ids = {TokenId{11}}; }, "stop_token_ids is 11"},
      {[](Request& r) { r.logprobs.top = 11; }, "logprobs is 11"},
      {[](Request& r) { r.logprobs.prompt_top = -1; }, "prompt_logprobs is -1"},
      {[](Request& r) { r.timeout_s = 0; }, "timeout_s is 0"},
  };
  for (const Case& one : cases) {
    Request request;
    one.change(request);
    const absl::Status status = CheckRequest(request, {.max_choices = 4, .vocab_size = 10});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
  }
}

}  // namespace
}  // namespace refrain::engine
