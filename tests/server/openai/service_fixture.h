#ifndef REFRAIN_TESTS_SERVER_OPENAI_SERVICE_FIXTURE_H_
#define REFRAIN_TESTS_SERVER_OPENAI_SERVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "server/http/server.h"
#include "server/openai/service.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::openai {

using nlohmann::json;
using ::refrain::testing::FakeEngine;
using ::refrain::testing::FakeEngineOptions;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

inline constexpr char kCompletions[] = "/v1/completions";
inline constexpr char kChat[] = "/v1/chat/completions";

// The OpenAI API over real sockets, with an engine that repeats its prompt.
class ServiceTest : public ::testing::Test {
 public:
  ~ServiceTest() override {
    if (server_ != nullptr) server_->Stop(0ms);
    engine_.reset();
  }

 protected:
  ServiceTest() : log_(LogFormat::kText, LogLevel::kError) {}

  void Start(FakeEngineOptions options = {}) {
    engine_ = std::make_unique<FakeEngine>(std::move(options));
    StartWithoutEngine();
    service_->SetEngine(engine_.get());
  }

  void StartWithoutEngine() {
    service_ = std::make_unique<Service>(Service::Options{.version = "9.9.9"}, &log_);
    service_->AddRoutes(&router_);
    http::ServerOptions options;
    options.error_body = Service::HttpErrorBody;
    server_ = *http::Server::Start(std::move(options), &router_);
  }

  RawResponse Get(std::string_view path) {
    RawClient client(server_->port());
    client.Send(GetRequest(path));
    return client.ReadResponse();
  }

  RawResponse Post(std::string_view path, const json& body) {
    RawClient client(server_->port());
    client.Send(PostRequest(path, body.dump()));
    return client.ReadResponse();
  }

  // The same with what changes from run to run made constant.
  std::string StreamText(std::string_view path, json body) {
    body["stream"] = true;
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.complete);
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
    const std::regex id(R"re("id":"(chat)?cmpl-[0-9a-f]+")re");
    const std::regex created(R"re("created":[0-9]+)re");
    const std::string text = std::regex_replace(response.body, id, "\"id\":\"ID\"");
    return std::regex_replace(text, created, "\"created\":0");
  }

  static std::vector<json> Events(const std::string& text) {
    std::vector<json> events;
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = text.find("\n\n", at);
      EXPECT_NE(end, std::string::npos) << "an event without its end";
      const std::string event = text.substr(at, end - at);
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      if (event != "data: [DONE]") events.push_back(json::parse(event.substr(6)));
      at = end + 2;
    }
    return events;
  }

  Log log_;
  http::Router router_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<FakeEngine> engine_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_TESTS_SERVER_OPENAI_SERVICE_FIXTURE_H_
