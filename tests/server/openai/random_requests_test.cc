// Random requests, most of them wrong in some way, over real sockets: no crash, no answer that
// blames the server, no request that is left running. 10^4 of them, or REFRAIN_RANDOM_STEPS.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/request_fields.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/eventually.h"
#include "tests/support/mutate.h"
#include "tests/support/random_steps.h"

namespace refrain::server::openai {
namespace {

using nlohmann::ordered_json;
using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::Eventually;
using ::refrain::testing::GetRequest;
using ::refrain::testing::Mutate;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::RequestFields;
using ::refrain::testing::ServedFake;

// Of all requests, and one that is unknown.
std::vector<std::string> AllFields(uint16_t port) {
  std::set<std::string> names = {"whatever"};
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    const ordered_json fields = RequestFields(port, path);
    for (const auto& [name, schema] : fields.items()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

// What may be answered to a request, however strange. 500 and 503 are not among them.
const std::set<int> kStatuses = {200, 400, 404, 405, 408, 411, 413, 414, 415, 417, 431, 505};

class Requests {
 public:
  Requests(const std::vector<std::string>& fields, uint32_t seed)
      : fields_(fields), random_(seed) {}

  size_t Below(size_t limit) { return random_() % limit; }
  bool Chance(int percent) { return static_cast<int>(Below(100)) < percent; }

  // A whole request; `broken`: its framing may be wrong, so no answer may be waited for.
  std::string Next(bool* broken) {
    *broken = false;
    const char* const kPaths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                  "/detokenize"};
    if (Chance(4)) {
      const char* const kGets[] = {"/v1/models", "/v1/models/x",    "/health", "/ready",
                                   "/nothing",   "/v1/completions", "/version"};
      return GetRequest(kGets[Below(std::size(kGets))]);
    }
    const size_t kind = Chance(80) ? Below(2) : Below(std::size(kPaths));
    std::string body = Body(kind).dump(-1, ' ', Chance(20));
    if (Chance(25)) Mutate(&random_, &body);
    std::string request = PostRequest(kPaths[kind], body);
    if (Chance(8)) {
      Mutate(&random_, &request);
      *broken = true;
    }
    return request;
  }

 private:
  ordered_json Body(size_t kind) {
    ordered_json body = ordered_json::object();
    if (kind == 1) {
      body["messages"] = {{{"role", "user"}, {"content", Text()}}};
    } else if (kind == 3) {
      body["tokens"] = {1, 2, 3};
    } else {
      body["prompt"] = Text();
    }
    if (Chance(70)) body["max_tokens"] = Below(20);
    if (Chance(40)) body["stream"] = Chance(70);
    const size_t wrong = Chance(60) ? Below(3) : Below(12);
    for (size_t i = 0; i < wrong; ++i) body[fields_[Below(fields_.size())]] = Value(0);
    if (Below(200) == 0) body[fields_[Below(fields_.size())]] = Flood();
    return body;
  }

  // Far more of something small than any field takes.
  ordered_json Flood() {
    const ordered_json kSmall[] = {0,
                                   5,
                                   "",
                                   "a",
                                   nullptr,
                                   ordered_json::object(),
                                   ordered_json::array({1}),
                                   {{"role", "user"}, {"content", "x"}}};
    const ordered_json& one = kSmall[Below(std::size(kSmall))];
    const ordered_json list = std::vector<ordered_json>(2100 + Below(20'000), one);
    return Chance(70) ? list : ordered_json{{"x", list}};
  }

  std::string Text() {
    const char* const kTexts[] = {"",
                                  "a",
                                  "hello there",
                                  "\xc3\xa9\xf0\x9f\x98\x80",
                                  "auto",
                                  "none",
                                  "24h",
                                  "text",
                                  "user",
                                  "\\\"\n\t",
                                  "<tool_call>{\"name\":\"f\"}</tool_call>",
                                  "<tool_call>{"};
    if (Chance(5)) return std::string(Below(400), 'x');
    return kTexts[Below(std::size(kTexts))];
  }

  ordered_json Value(int depth) {
    switch (Below(depth > 3 ? 8 : 12)) {
      case 0:
        return nullptr;
      case 1:
        return Chance(50);
      case 2:
      case 3:
        return static_cast<int64_t>(Below(12)) - 2;
      case 4:
        return static_cast<double>(Below(400)) / 100 - 2;
      case 5:
        return Chance(50) ? ordered_json(random_()) : ordered_json(-1e300);
      case 6:
      case 7:
        return Text();
      case 8:
      case 9: {
        ordered_json list = ordered_json::array();
        for (size_t i = Below(4); i > 0; --i) list.push_back(Value(depth + 1));
        return list;
      }
      default: {
        ordered_json object = ordered_json::object();
        const char* const kKeys[] = {"type",
                                     "function",
                                     "name",
                                     "role",
                                     "content",
                                     "text",
                                     "5",
                                     "include_usage",
                                     "continuous_usage_stats",
                                     "tool_calls",
                                     "x"};
        for (size_t i = Below(4); i > 0; --i) {
          object[kKeys[Below(std::size(kKeys))]] = Value(depth + 1);
        }
        return object;
      }
    }
  }

  const std::vector<std::string> fields_;
  std::mt19937 random_;
};

struct Tally {
  std::atomic<int> good{0}, refused{0}, dropped{0};
};

void SendMany(uint16_t port, uint32_t seed, int count, Tally* tally) {
  Requests requests(AllFields(port), seed);
  auto client = std::make_unique<RawClient>(port);
  for (int i = 0; i < count; ++i) {
    bool broken = false;
    const std::string request = requests.Next(&broken);
    client->Send(request);
    if (broken || requests.Chance(4)) {  // gone before the answer
      if (requests.Chance(50)) client->HalfClose();
      requests.Chance(50) ? client->Close() : client->Reset();
      client = std::make_unique<RawClient>(port);
      ++tally->dropped;
      continue;
    }
    const RawResponse response = client->ReadResponse();
    ASSERT_TRUE(kStatuses.contains(response.status))
        << response.status << " " << response.body << "\n to " << request;
    ASSERT_TRUE(response.complete) << request;
    ++(response.status == 200 ? tally->good : tally->refused);
    const auto connection = response.headers.find("connection");
    if (connection != response.headers.end() && connection->second == "close") {
      client = std::make_unique<RawClient>(port);
    }
  }
}

// What half of the requests may leave behind in all: 13 bytes each of 5,000. Without a leak it is
// less than 10,000 (the test's environment turns off malloc's caches of threads, which count as
// allocated).
constexpr size_t kLeastLeakBytes = 64 << 10;

TEST(RandomRequests, NoneCrashesSticksLeaksOrBlamesTheServer) {
  constexpr int kThreads = 4;
  http::ServerOptions http_options;
  http_options.header_timeout = http_options.body_timeout = std::chrono::milliseconds(1000);
  ServedFake served(
      {.max_context_tokens = 512, .chat_template = "{% if tools %}<tool_call>{% endif %}"},
      std::move(http_options), {.version = "9", .max_choices = 4, .max_beams = 4});
  Tally tally;
  const auto send_half = [&](uint32_t seed) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back(SendMany, served.port(), RandomSeed(seed + i),
                           RandomSteps() / 2 / kThreads, &tally);
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(served.engine().WaitForRunning(0));
    EXPECT_TRUE(Eventually([&] { return served.server().connections() == 0; }));
    EXPECT_TRUE(served.engine().DropIdleCache().ok());
  };
  // By the second half everything is as large as it gets.
  send_half(1000);
  const size_t before = AllocatedBytes();
  send_half(1000 + kThreads);
  EXPECT_LE(AllocatedBytes(), before + kLeastLeakBytes);
  // The mixture is what it is meant to be.
  EXPECT_GT(tally.good, RandomSteps() / 10);
  EXPECT_GT(tally.refused, RandomSteps() / 5);
  EXPECT_GT(tally.dropped, RandomSteps() / 50);
  RawClient client(served.port());
  client.Send(PostRequest("/v1/completions", R"({"prompt":"still here"})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace refrain::server::openai
