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
      {[](Request& r) { r.sampling.thinking_budget_tokens = -1; },
       "thinking_token_budget is -1, must be at least 0"},
      {[](Request& r) { r.stop.max_tokens = -1; }, "max_tokens is -1"},
      {[](Request& r) { r.stop.min_tokens = 17; }, "min_tokens is 17"},
      {[](Request& r) { r.stop.stop_token_ids = {TokenId{11}}; }, "stop_token_ids is 11"},
      {[](Request& r) { r.logprobs.top = 11; }, "logprobs is 11"},
      {[](Request& r) { r.logprobs.prompt_top = -1; }, "prompt_logprobs is -1"},
      {[](Request& r) { r.timeout_s = 0; }, "timeout_s is 0"},
      {[](Request& r) { r.best_of = 5; }, "best_of is 5, must be from n, which is 1, to 4"},
      {[](Request& r) {
         r.n = 3;
         r.best_of = 2;
       },
       "best_of is 2, must be from n, which is 3, to 4"},
      {[](Request& r) { r.cache_salt.assign(129, 's'); },
       "cache_salt is 129 characters long, must be at most 128"},
  };
  for (const Case& one : cases) {
    Request request;
    one.change(request);
    const absl::Status status = CheckRequest(request, {.max_choices = 4, .vocab_size = 10});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
  }
}

TEST(RequestChecksTest, CountsASaltsCharactersNotItsBytes) {
  Request request;
  for (int i = 0; i < 128; ++i) request.cache_salt += "\xc3\xa9";
  EXPECT_EQ(CheckRequest(request, {.vocab_size = 10}), absl::OkStatus());
  request.cache_salt += "\xc3\xa9";
  EXPECT_EQ(CheckRequest(request, {.vocab_size = 10}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestChecksTest, BeamsTakeDefaultsAndTemperatureZero) {
  Request request;
  request.n = 2;
  request.best_of = 4;
  request.beam.emplace();
  request.stop.stop_token_ids = {TokenId{3}};
  request.sampling.seed = 5;
  const RequestLimits limits = {.max_choices = 4, .max_beams = 4, .vocab_size = 10};
  EXPECT_EQ(CheckRequest(request, limits), absl::OkStatus());
  request.sampling.temperature = 0;
  EXPECT_EQ(CheckRequest(request, limits), absl::OkStatus());
}

TEST(RequestChecksTest, BeamsRefuseWhatContradictsThem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {[](Request& r) { r.n = 4; }, "n is 4, must be at most 3 with use_beam_search"},
      {[](Request& r) { r.best_of = 4; }, "best_of is 4, must be at most 3 with use_beam_search"},
      {[](Request& r) { r.sampling.temperature = 0.5; }, "temperature is 0.5, must be 0 or 1 with"},
      {[](Request& r) { r.sampling.top_p = 0.5; }, "top_p is 0.5, must be 1 with"},
      {[](Request& r) { r.sampling.min_p = 0.5; }, "min_p is 0.5, must be 0 with"},
      {[](Request& r) { r.sampling.top_k = 5; }, "top_k is 5, must be 0 with"},
      {[](Request& r) { r.sampling.repetition_penalty = 2; }, "repetition_penalty is 2"},
      {[](Request& r) { r.sampling.presence_penalty = 1; }, "presence_penalty is 1"},
      {[](Request& r) { r.sampling.frequency_penalty = 1; }, "frequency_penalty is 1"},
      {[](Request& r) {
         r.sampling.logit_bias = {{TokenId{1}, 1.0f}};
       },
       "logit_bias is set, must be absent with"},
      {[](Request& r) { r.sampling.allowed_tokens = {TokenId{1}}; }, "allowed_tokens is set"},
      {[](Request& r) { r.sampling.thinking_budget_tokens = 7; },
       "thinking_token_budget is 7, must be absent with use_beam_search"},
      {[](Request& r) { r.stop.stop = {"x"}; }, "stop is set"},
      {[](Request& r) { r.echo = true; }, "echo is on, must be off with"},
      {[](Request& r) { r.beam->length_penalty = 11; },
       "length_penalty is 11, must be from -10 to 10"},
      {[&](Request& r) { r.beam->length_penalty = nan; }, "length_penalty is nan"},
  };
  for (const Case& one : cases) {
    Request request;
    request.beam.emplace();
    one.change(request);
    const absl::Status status =
        CheckRequest(request, {.max_choices = 8, .max_beams = 3, .vocab_size = 10});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
  }
}

// Two candidates per beam must exist, one of which may end it.
TEST(RequestChecksTest, RefusesMoreBeamsThanHalfTheVocabulary) {
  Request request;
  request.n = 6;
  request.beam.emplace();
  const absl::Status status = CheckRequest(request, {.max_choices = 8, .vocab_size = 10});
  EXPECT_THAT(std::string(status.message()), HasSubstr("half of the vocabulary of 10"));
}

}  // namespace
}  // namespace refrain::engine
