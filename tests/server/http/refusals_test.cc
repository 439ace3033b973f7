// Requests that are refused before all of them has come.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/http/server_fixture.h"
#include "tests/support/slow_build.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr char kPost[] = "POST /echo HTTP/1.1\r\nHost: t\r\n";

class Refusals : public HttpServerTest {
 protected:
  ~Refusals() override { server_.reset(); }  // before what it tells of exchanges
  // Notes the status of each exchange.
  void Start(ServerOptions options) {
    options.on_exchange = [this](const Exchange& exchange) {
      const std::lock_guard lock(mutex_);
      statuses_.push_back(exchange.status);
    };
    HttpServerTest::Start(std::move(options));
  }
  static std::unique_ptr<Reply> AskForKey(const Request& request) {
    if (request.Header("x-key") == "right") return nullptr;
    return MakeReply({.status = 401}, "no");
  }
  // In whatever order: a client has its answer a little before.
  bool Reports(std::vector<int> statuses) {
    std::sort(statuses.begin(), statuses.end());
    return Eventually([&] {
      const std::lock_guard lock(mutex_);
      std::sort(statuses_.begin(), statuses_.end());
      return statuses_ == statuses;
    });
  }

 private:
  std::mutex mutex_;
  std::vector<int> statuses_;
};

// Each piece ends in the next field's name, so that the parser is done with all before it. The
// header's end never comes.
TEST_F(Refusals, AHeaderThatComesFieldByFieldHasTheSameLimit) {
  Start({.header_bytes = 2048, .header_timeout = 60s});
  RawClient client = Connect();
  client.Send("GET /hello HTTP/1.1\r\nHost: t\r\nX");
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(20ms);
    client.Send("-A: " + std::string(1000, 'x') + "\r\nX");
  }
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 431);
  EXPECT_NE(response.body.find("2048 bytes (limits.header_bytes)"), std::string::npos)
      << response.body;
  EXPECT_TRUE(Reports({431}));
}

TEST_F(Refusals, FieldsBehindTheLastChunkDoNotCountAsHeader) {
  Start({.header_bytes = 1024});
  const std::string chunks =
      std::string(kPost) + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n";
  EXPECT_EQ(Once(chunks + "A: " + std::string(2000, 'x') + "\r\n\r\n").body, "body");
}

// Beast keeps the sizes of a field in 16 bits.
TEST_F(Refusals, AFieldMayBeAsLongAsItCanBeKept) {
  Start({.header_bytes = 1 << 20});
  const std::string chunked = std::string(kPost) + "Transfer-Encoding: chunked\r\n\r\n0\r\n";
  const std::string header = "GET /hello HTTP/1.1\r\nHost: t\r\n";
  constexpr size_t kMost = 65'533;
  std::vector<int> statuses;
  for (const std::string& begin : {chunked, header}) {
    for (const size_t bytes : {kMost, kMost + 1, size_t{70'000}}) {
      const std::string text(bytes, 'x');
      for (const std::string& field : {"A: " + text, text + ": a"}) {
        statuses.push_back(bytes <= kMost ? 200 : 431);
        const RawResponse response = Once(begin + field + "\r\n\r\n");
        EXPECT_EQ(response.status, statuses.back()) << begin << bytes;
        if (bytes > kMost) {
          EXPECT_NE(response.body.find("65533 bytes"), std::string::npos) << response.body;
        }
      }
    }
  }
  EXPECT_TRUE(Reports(statuses));
}

// Who has no key must not hold a connection by promising a small body.
TEST_F(Refusals, ASmallBodyThatDoesNotComeIsNotWaitedForLong) {
  Start({.header_timeout = 200ms, .body_timeout = 60s, .filter = &AskForKey});
  for (const char* begin : {"", "some"}) {
    RawClient client = Connect();
    const auto sent = Clock::now();
    client.Send(std::string(kPost) + "Content-Length: 9\r\n\r\n" + begin);
    RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 401);
    EXPECT_EQ(response.headers["connection"], "close");
    EXPECT_GE(Clock::now() - sent, 200ms);
    EXPECT_LT(Clock::now() - sent, 5s * testing::kSlowBuildFactor);
    client.Close();
  }
  EXPECT_TRUE(Reports({401, 401}));
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(Refusals, ABodyThatTricklesInIsNotWaitedForLonger) {
  Start({.header_timeout = 200ms, .body_timeout = 60s, .filter = &AskForKey});
  RawClient client = Connect();
  const auto sent = Clock::now();
  client.Send(std::string(kPost) + "Content-Length: 1000\r\n\r\n");
  std::thread sender([&] {
    for (int i = 0; i < 100 && client.Send("x"); ++i) std::this_thread::sleep_for(5ms);
  });
  EXPECT_EQ(client.ReadResponse().status, 401);
  EXPECT_LT(Clock::now() - sent, 5s * testing::kSlowBuildFactor);
  sender.join();
}

// Its connection goes on, also where connections may idle for as long as they like.
TEST_F(Refusals, ASmallBodyThatComesALittleLaterKeepsTheConnection) {
  Start({.idle_timeout = 0ms, .header_timeout = 1s, .filter = &AskForKey});
  RawClient client = Connect();
  client.Send(std::string(kPost) + "Content-Length: 9\r\n\r\n");
  std::this_thread::sleep_for(50ms);
  client.Send("some body");
  RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(response.headers["connection"], "keep-alive");
  std::this_thread::sleep_for(1200ms);
  client.Send(PostRequest("/echo", "small", "X-Key: right\r\n"));
  EXPECT_EQ(client.ReadResponse().body, "small");
}

// Nothing reads it, and everybody may ask.
TEST_F(Refusals, ASmallBodyThatNothingReadsHasAHeadersTime) {
  Start({.header_timeout = 200ms, .body_timeout = 60s});
  RawClient client = Connect();
  client.Send("GET /hello HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n");
  EXPECT_TRUE(client.ReadEnd());
  EXPECT_TRUE(Reports({408}));
}

}  // namespace
}  // namespace refrain::server::http
