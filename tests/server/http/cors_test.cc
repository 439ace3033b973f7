#include "server/http/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace refrain::server::http {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

Request From(std::string_view origin, std::string_view method = "GET",
             std::string_view asked_method = "") {
  Request request;
  request.method = method;
  if (!origin.empty()) request.headers.emplace_back("Origin", origin);
  if (!asked_method.empty()) {
    request.headers.emplace_back("Access-Control-Request-Method", asked_method);
  }
  return request;
}

std::string Allowed(const CorsPolicy& policy, const Request& request) {
  for (const auto& [name, value] : policy.AnswerHeaders(request)) {
    if (name == "Access-Control-Allow-Origin") return value;
  }
  return "";
}

TEST(Cors, IsOffByDefault) {
  const CorsPolicy off = *CorsPolicy::Parse(" ");
  EXPECT_FALSE(off.enabled());
  EXPECT_TRUE(off.AnswerHeaders(From("https://a.example")).empty());
  EXPECT_EQ(off.PreflightOrNull(From("https://a.example", "OPTIONS", "POST")), nullptr);
}

TEST(Cors, AllowsTheOriginsItWasGivenExactly) {
  const CorsPolicy policy = *CorsPolicy::Parse("https://a.example, http://b.example:8080");
  EXPECT_EQ(Allowed(policy, From("https://a.example")), "https://a.example");
  EXPECT_EQ(Allowed(policy, From("http://b.example:8080")), "http://b.example:8080");
  for (const char* other : {"", "null", "http://a.example", "https://a.example:444",
                            "https://a.example.evil.example", "https://evil.example"}) {
    EXPECT_EQ(Allowed(policy, From(other)), "") << other;
    EXPECT_EQ(policy.PreflightOrNull(From(other, "OPTIONS", "POST")), nullptr) << other;
  }
  EXPECT_EQ(Allowed(*CorsPolicy::Parse("*"), From("https://x.example")), "*");
}

// Else a cache between would show one origin the answer that another was allowed to read.
TEST(Cors, AnswersVaryByOriginWhereOriginsAreTold) {
  const CorsPolicy some = *CorsPolicy::Parse("https://a.example");
  for (const char* origin : {"https://a.example", "https://evil.example", ""}) {
    EXPECT_THAT(some.AnswerHeaders(From(origin)), Contains(Pair("Vary", "Origin"))) << origin;
  }
  EXPECT_THAT(CorsPolicy::Parse("*")->AnswerHeaders(From("https://a.example")),
              Not(Contains(Key("Vary"))));
}

// Without being named these would be hidden from a page, which could not wait as it was told to.
TEST(Cors, PagesThatAreAllowedSeeOurHeaders) {
  for (const char* origins : {"https://a.example", "*"}) {
    const CorsPolicy policy = *CorsPolicy::Parse(origins);
    EXPECT_THAT(policy.AnswerHeaders(From("https://a.example")),
                Contains(Pair("Access-Control-Expose-Headers",
                              "X-Request-Id, Retry-After, X-Should-Retry")));
  }
  EXPECT_THAT(CorsPolicy::Parse("https://a.example")->AnswerHeaders(From("https://evil.example")),
              Not(Contains(Key("Access-Control-Expose-Headers"))));
}

TEST(Cors, AnswersPreflightsOnly) {
  const CorsPolicy policy = *CorsPolicy::Parse("https://a.example");
  EXPECT_EQ(policy.PreflightOrNull(From("https://a.example", "OPTIONS")), nullptr);
  EXPECT_EQ(policy.PreflightOrNull(From("https://a.example", "POST", "POST")), nullptr);
  const auto reply = policy.PreflightOrNull(From("https://a.example", "OPTIONS", "POST"));
  ASSERT_NE(reply, nullptr);
  const ResponseHead head = *reply->Next().head;
  EXPECT_EQ(head.status, 200);
  // Browsers ask again before every call where nothing says how long the answer holds.
  EXPECT_THAT(head.headers, Contains(Pair("Access-Control-Max-Age", "600")));
  EXPECT_THAT(head.headers, Contains(Pair("Access-Control-Allow-Methods", "GET, POST")));
}

TEST(Cors, RefusesWhatIsNotAnOrigin) {
  for (const char* text : {"a.example", "https://", "https://a.example/", "https://A.example",
                           "https://a.example/path", "://a"}) {
    const auto policy = CorsPolicy::Parse(text);
    ASSERT_FALSE(policy.ok()) << text;
    EXPECT_NE(std::string(policy.status().message()).find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace refrain::server::http
