// A thousand streams at once, over real sockets, from the real engine over a model that costs
// nothing.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http/server.h"
#include "server/metrics/metrics.h"
#include "server/openai/service.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/costless_engine.h"
#include "tests/support/eventually.h"
#include "tests/support/slow_build.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::CostlessModel;
using ::refrain::testing::Eventually;
using ::refrain::testing::GetRequest;
using ::refrain::testing::kCostlessNumbers;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::MakeCostlessEngine;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::TimeGet;
using namespace std::chrono_literals;

constexpr int kStreams = 1000;
constexpr int kTokens = 24;

class ManyStreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Both ends of each connection are this process's.
    rlimit files{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 2 * kStreams + 100) {
      GTEST_SKIP() << "at most " << files.rlim_max << " open files";
    }
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  }

  // The first step waits for Release, so that all requests are there before any has its answer.
  void Start(int max_sequences) {
    CostlessModel model;
    model.before_step = [this](size_t tokens) {
      most_at_once_ = std::max(most_at_once_.load(), tokens);
      if (first_.exchange(false)) first_tokens_ = tokens;
      released_.wait(false);
    };
    engine::EngineOptions options;
    options.max_sequences = max_sequences;
    options.step_token_budget = 1 << 16;
    engine_ = *MakeCostlessEngine(model, options);
    service_.SetEngine(engine_.get());
    metrics_.SetEngine(engine_.get());
    service_.AddRoutes(&router_);
    metrics_.AddRoutes(&router_);
    http::ServerOptions http_options;
    http_options.error_body = Service::HttpErrorBody;
    http_options.on_part_sent = [this](std::chrono::nanoseconds delay) {
      if (delay >= 0ns && delay < 10min) ++timed_parts_;
    };
    server_ = *http::Server::Start(std::move(http_options), &router_);
  }

  void Release() {
    released_ = true;
    released_.notify_all();
  }

  void TearDown() override {
    Release();
    if (server_ != nullptr) server_->Stop(0ms);
    engine_.reset();
  }

  RawClient Ask(int stream, int tokens = kTokens) {
    RawClient client(server_->port());
    const json body = {{"prompt", std::to_string(1'000'000 + stream)},
                       {"max_tokens", tokens},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    EXPECT_TRUE(client.Send(PostRequest("/v1/completions", body.dump())));
    return client;
  }

  bool WaitUntilWaiting(int requests) const {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (first_ ||
           engine_->stats().queued_requests + static_cast<int>(first_tokens_) < requests) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  // "" or what is wrong with an answer.
  static std::string FaultOf(const RawResponse& response, int wanted_tokens = kTokens) {
    if (response.status != 200) return response.body;
    if (!response.complete) return "it does not end";
    if (!response.body.ends_with("data: [DONE]\n\n")) return "it ends without [DONE]";
    int tokens = 0, last_number = -1;
    bool finished = false;
    json usage;
    for (size_t at = 0; response.body.compare(at, 12, "data: [DONE]") != 0;) {
      const size_t end = response.body.find("\n\n", at);
      const json event = json::parse(response.body.substr(at + 6, end - at - 6));
      at = end + 2;
      if (event["choices"].empty()) {
        usage = event["usage"];
        continue;
      }
      const std::string text = event["choices"][0]["text"];
      const int number = std::stoi(text);
      if (tokens > 0 && number != (last_number + 1) % kCostlessNumbers) {
        return "\"" + text + "\" comes after " + std::to_string(last_number);
      }
      last_number = number;
      ++tokens;
      finished = event["choices"][0]["finish_reason"] == "length";
    }
    if (tokens != wanted_tokens) return std::to_string(tokens) + " tokens came";
    if (usage["completion_tokens"] != wanted_tokens) return "usage is " + usage.dump();
    return finished ? "" : "the last token has no finish_reason";
  }

  Log log_{LogFormat::kText, LogLevel::kError};
  http::Router router_;
  Service service_{{.version = "9.9.9"}, &log_};
  metrics::Metrics metrics_{{.version = "9.9.9", .cache = {}, .dropped_log_lines = {}}};
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<http::Server> server_;
  std::atomic<bool> released_{false};
  std::atomic<bool> first_{true};
  std::atomic<size_t> first_tokens_{0};
  std::atomic<size_t> most_at_once_{0};
  std::atomic<int> timed_parts_{0};
};

TEST_F(ManyStreamsTest, AThousandAtOnceAllFinishRight) {
  Start(kStreams);
  std::vector<RawClient> clients;
  for (int i = 0; i < kStreams; ++i) clients.push_back(Ask(i));
  ASSERT_TRUE(WaitUntilWaiting(kStreams));
  Release();
  for (int i = 0; i < kStreams; ++i) {
    ASSERT_EQ(FaultOf(clients[static_cast<size_t>(i)].ReadResponse()), "") << "stream " << i;
  }
  EXPECT_EQ(most_at_once_, static_cast<size_t>(kStreams)) << "they did not run all at once";
  EXPECT_EQ(engine_->stats().generated_tokens_total, int64_t{kStreams} * kTokens);
  // Told after the client may have read.
  EXPECT_TRUE(Eventually([&] { return timed_parts_ >= kStreams; }))
      << "the time from sampling to the socket is told";
}

// The bound of the project on two cores, clients among them; they reach several times that. What
// other programs take counts against it, hence the best of some rounds.
TEST_F(ManyStreamsTest, SixtyFourStreamsGiveTwentyThousandTokensASecond) {
  constexpr int kConnections = 64, kTokensEach = 512;
  constexpr double kLeast = 20'000.0 / kSlowBuildFactor;
  Start(kConnections);
  Release();
  double best = 0;
  for (int round = 0; round < 5 && best < kLeast; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<RawClient> clients;
    for (int i = 0; i < kConnections; ++i) {
      clients.push_back(Ask(round * kConnections + i, kTokensEach));
    }
    std::vector<RawResponse> answers;
    for (RawClient& client : clients) answers.push_back(client.ReadResponse());
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, kConnections * kTokensEach / time.count());
    for (const RawResponse& answer : answers) ASSERT_EQ(FaultOf(answer, kTokensEach), "");
  }
  EXPECT_GE(best, kLeast) << "tokens per second";
}

// Eight run, which a step holds up, and the others wait for them.
TEST_F(ManyStreamsTest, ProbesAnswerUnder20MillisecondsWith100RequestsQueued) {
  Start(/*max_sequences=*/8);
  std::vector<RawClient> waiting;
  for (int i = 0; i < 108; ++i) waiting.push_back(Ask(i));
  ASSERT_TRUE(WaitUntilWaiting(108));
  RawClient client(server_->port());
  for (const char* path : {"/health", "/metrics"}) {
    constexpr double kMostMs = 20;
    const std::optional<double> milliseconds = TimeGet(&client, path, kMostMs);
    ASSERT_TRUE(milliseconds.has_value()) << path;
    EXPECT_LT(*milliseconds, kMostMs) << path;
  }
  EXPECT_GE(engine_->stats().queued_requests, 100);
  client.Send(GetRequest("/metrics"));
  const std::string page = client.ReadResponse().body;
  const size_t line = page.find("\nvllm:num_requests_waiting{");
  ASSERT_NE(line, std::string::npos) << page;
  EXPECT_GE(std::stoi(page.substr(page.find("} ", line) + 2)), 100);
}

}  // namespace
}  // namespace refrain::server::openai
