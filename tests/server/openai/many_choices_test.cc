// Calls of many prompts or choices in a small body: a worker takes them in, not the thread that
// serves sockets.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/access/gate.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/eventually.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::Eventually;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::ServedFake;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";

// Lets everybody in and knows on which thread it was asked last.
class ThreadGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area, std::string_view) const override {
    return access::Principal{};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = std::this_thread::get_id();
    return access::Ticket();
  }
  std::thread::id last() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;
  std::thread::id last_;
};

class ManyChoices : public ::testing::Test {
 protected:
  // The thread that took the call in.
  std::thread::id ThreadOf(const char* path, const json& body) {
    RawClient client(served_.port());
    client.Send(PostRequest(path, body.dump()));
    last_ = client.ReadResponse();
    EXPECT_EQ(last_.status, 200) << last_.body;
    return gate_.last();
  }

  static json Prompts(size_t count) {
    return {{"prompt", std::vector<std::string>(count, "a")}, {"max_tokens", 1}};
  }
  static json Chat(int n) {
    return {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"n", n}, {"max_tokens", 1}};
  }

  ThreadGate gate_;
  ServedFake served_{{}, {.io_threads = 1}, {.version = "9.9.9", .gate = &gate_}};
  RawResponse last_;
  const std::thread::id io_thread_ = ThreadOf(kCompletions, Prompts(1));
};

TEST_F(ManyChoices, AreTakenInByAWorker) {
  const json kMany[] = {
      Prompts(17),
      Prompts(1024),
      {{"prompt", std::vector<std::vector<int>>(17, {1})}, {"max_tokens", 1}},
      {{"prompt", "a"}, {"n", 17}, {"max_tokens", 1}},
      {{"prompt", "a"}, {"best_of", 17}, {"max_tokens", 1}},
      {{"prompt", {"a", "b", "c"}}, {"n", 6}, {"max_tokens", 1}},
  };
  for (const json& body : kMany) EXPECT_NE(ThreadOf(kCompletions, body), io_thread_) << body;
  EXPECT_NE(ThreadOf(kChat, Chat(17)), io_thread_);
}

TEST_F(ManyChoices, FewAreTakenInAtOnce) {
  const json kFew[] = {
      Prompts(16),
      {{"prompt", std::vector<int>(1000, 1)}, {"max_tokens", 1}},  // one of many ids
      {{"prompt", {"a", "b"}}, {"n", 8}, {"max_tokens", 1}},
  };
  for (const json& body : kFew) EXPECT_EQ(ThreadOf(kCompletions, body), io_thread_) << body;
  EXPECT_EQ(ThreadOf(kChat, Chat(16)), io_thread_);
}

TEST_F(ManyChoices, AreAnsweredAsFewAre) {
  std::vector<std::string> prompts;
  for (int i = 0; i < 100; ++i) prompts.push_back("prompt " + std::to_string(i));
  for (const bool stream : {false, true}) {
    const json body = {{"prompt", prompts}, {"max_tokens", 20}, {"stream", stream}};
    ASSERT_NE(ThreadOf(kCompletions, body), io_thread_);
    ASSERT_TRUE(last_.complete);
    if (stream) {
      EXPECT_TRUE(last_.body.ends_with("data: [DONE]\n\n"));
      continue;
    }
    const json answer = json::parse(last_.body);
    ASSERT_EQ(answer["choices"].size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(answer["choices"][i]["text"], prompts[i]);
  }
}

TEST_F(ManyChoices, AreRefusedAsFewAre) {
  RawClient client(served_.port());
  const std::vector<json> kWrong = {
      {{"prompt", std::vector<std::string>(17, "a")}, {"temperature", -1}},
      {{"prompt", "a"}, {"n", 1e300}},
      {{"prompt", std::vector<std::string>(1025, "a")}},
  };
  for (const json& body : kWrong) {
    client.Send(PostRequest(kCompletions, body.dump()));
    const RawResponse response = client.ReadResponse();  // the connection goes on
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(json::parse(response.body)["error"]["type"], "invalid_request_error");
  }
}

// What it has begun ends with it.
TEST_F(ManyChoices, OfAClientThatGoesAwayAreCancelled) {
  {
    RawClient client(served_.port());
    const json body = {{"prompt", std::vector<std::string>(100, "[[hold]]a")}};
    client.Send(PostRequest(kCompletions, body.dump()));
    ASSERT_TRUE(served_.engine().WaitForRunning(100));
  }
  EXPECT_TRUE(served_.engine().WaitForCancelled(100));
}

// Lets in one after the other, as many as the test says; a call waits at it on its thread.
class SteppedGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area, std::string_view) const override {
    return access::Principal{};
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    const int number = ++came;
    while (number > admitted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return access::Ticket();
  }

  std::atomic<int> came{0};
  std::atomic<int> admitted{0};
};

// With bodies that the I/O thread parses, and with larger ones.
class ManyChoicesOfManyClients : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(BodyBytes, ManyChoicesOfManyClients, ::testing::Values(16'000, 100'000));

// Lists of empty lists take 24 times their text.
TEST_P(ManyChoicesOfManyClients, WaitAsTextForTheWorker) {
  constexpr int kClients = 20;
  SteppedGate gate;
  ServedFake served({}, {.io_threads = 1, .worker_threads = 1},
                    {.version = "9.9.9", .gate = &gate});
  const auto body = [](int n) {
    std::string text = R"({"prompt":"a","max_tokens":1,"n":)" + std::to_string(n) + R"(,"x":[[])";
    while (text.size() < GetParam()) text += ",[]";
    return text + "]}";
  };
  RawClient first(served.port());
  first.Send(PostRequest(kCompletions, body(17)));
  ASSERT_TRUE(Eventually([&] { return gate.came == 1; }));
  const size_t before = AllocatedBytes();
  std::vector<RawClient> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(served.port()).Send(PostRequest(kCompletions, body(17)));
  }
  // One I/O thread takes turns: when it has served these, it has read what had come before them.
  RawClient other(served.port());
  for (int i = 0; i < 50; ++i) {
    other.Send(GetRequest("/live"));
    ASSERT_EQ(other.ReadResponse().status, 200);
  }
  gate.admitted = 1;
  ASSERT_TRUE(Eventually([&] { return gate.came == 2; }));
  EXPECT_LT(AllocatedBytes(), before + 10 * kClients * GetParam());
  gate.admitted = 1 + kClients;
  EXPECT_EQ(first.ReadResponse().status, 200);
  for (RawClient& client : clients) EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace refrain::server::openai
