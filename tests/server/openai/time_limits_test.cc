// A request's time runs from when all of it is there, also while it waits for a thread.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "server/http/server.h"
#include "server/openai/service.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/costless_engine.h"
#include "tests/support/slow_build.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::GetRequest;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::MakeCostlessEngine;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

constexpr double kShort_s = kSlowBuildFactor == 1 ? 0.2 : 1;
constexpr double kLong_s = 1000;

// One worker, which the test keeps busy for longer than the short limit.
class TimeLimits : public ::testing::Test {
 protected:
  void Start(double configured_s = 0) {
    engine::EngineOptions options;
    options.limits.request_timeout_s = configured_s;
    engine_ = *MakeCostlessEngine({}, options);
    service_.SetEngine(engine_.get());
    service_.AddRoutes(&router_);
    router_.Add({"GET", "/blocked",
                 [this](const http::Request&) {
                   blocked_ = true;
                   blocked_.notify_all();
                   may_end_.wait(false);
                   may_end_ = false;
                   return http::MakeReply({}, "blocked");
                 },
                 http::HandlerSpeed::kSlow});
    http::ServerOptions http_options{.worker_threads = 1};
    http_options.error_body = Service::HttpErrorBody;
    server_ = *http::Server::Start(std::move(http_options), &router_);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Stop(0ms);
    engine_.reset();
  }

  // The status of the answer behind the blocker's, which ends long after the request was sent.
  int StatusBehindABlocker(const std::string& request) {
    RawClient blocker(server_->port());
    blocker.Send(GetRequest("/blocked"));
    blocked_.wait(false);
    RawClient client(server_->port());
    client.Send(request);
    std::this_thread::sleep_for(std::chrono::duration<double>(3 * kShort_s));
    may_end_ = true;
    may_end_.notify_all();
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(blocker.ReadResponse().body, "blocked");
    blocked_ = false;
    return response.status;
  }
  // More than what an I/O thread parses, or more choices than it takes in.
  static std::string Completion(std::optional<double> timeout_s, bool large, const char* header) {
    json body = {{"prompt", std::string(100, 'a')}, {"max_tokens", 1}};
    if (large) body["user"] = std::string(20 << 10, 'u');
    if (!large) body["n"] = 20;
    if (timeout_s.has_value()) body["timeout"] = *timeout_s;
    return PostRequest("/v1/completions", body.dump(), header);
  }

  Log log_{LogFormat::kText, LogLevel::kError};
  http::Router router_;
  Service service_{{.version = "9.9.9"}, &log_};
  std::atomic<bool> blocked_{false}, may_end_{false};
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(TimeLimits, CountTheTimeForWhichABodyWaitsForAWorker) {
  Start();
  const std::string header = "X-Request-Timeout: " + std::to_string(kShort_s) + "\r\n";
  for (const bool large : {true, false}) {
    EXPECT_EQ(StatusBehindABlocker(Completion(kShort_s, large, "")), 408) << large;
    EXPECT_EQ(StatusBehindABlocker(Completion({}, large, header.c_str())), 408) << large;
  }
  EXPECT_EQ(StatusBehindABlocker(Completion(kLong_s, true, "")), 200);
  EXPECT_EQ(StatusBehindABlocker(Completion({}, false, "")), 200);
  const std::string text = R"({"prompt":"text"})";
  EXPECT_EQ(StatusBehindABlocker(PostRequest("/tokenize", text, header)), 408);
  EXPECT_EQ(StatusBehindABlocker(PostRequest("/tokenize", text)), 200);
}

TEST_F(TimeLimits, CountItOfTheConfiguredTimeToo) {
  Start(kShort_s);
  EXPECT_EQ(StatusBehindABlocker(Completion({}, true, "")), 408);
  EXPECT_EQ(StatusBehindABlocker(Completion(kLong_s, true, "")), 408);
  EXPECT_EQ(StatusBehindABlocker(PostRequest("/tokenize", R"({"prompt":"text"})")), 408);
}

}  // namespace
}  // namespace refrain::server::openai
