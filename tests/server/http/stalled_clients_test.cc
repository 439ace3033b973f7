// Clients that read in small steps through a small window, and those that stop or are unplugged:
// what the system makes of a window that stays closed is not what a limit should hang on.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "server/http/message.h"
#include "tests/server/http/server_fixture.h"
#include "tests/support/slow_build.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::RawClient;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Less than a socket keeps for a client that does not read, and nothing behind it.
class Begun final : public Reply {
 public:
  explicit Begun(Observed* observed) : observed_(observed) { ++observed_->alive; }
  ~Begun() override { --observed_->alive; }
  ReplyPart Next() override {
    ReplyPart part;
    if (!std::exchange(first_, false)) return part;
    part.head = ResponseHead{.content_type = "text/plain"};
    part.body = std::string(kBytes, 'b');
    return part;
  }

  static constexpr size_t kBytes = 64 << 10;

 private:
  Observed* const observed_;
  bool first_ = true;
};

class StalledClientsTest : public HttpServerTest {
 protected:
  static constexpr int kSmallBuffer = 16 << 10;

  void Start(ServerOptions options) {
    router_.Add({"GET", "/begun", [this](Request) { return std::make_unique<Begun>(&observed_); }});
    HttpServerTest::Start(std::move(options));
  }
  // Starts a stream of which something is left in the socket.
  std::unique_ptr<RawClient> Begin() {
    auto client = std::make_unique<RawClient>(server_->port(), kSmallBuffer);
    client->Send(GetRequest("/begun"));
    EXPECT_TRUE(Eventually([&] { return observed_.alive == 1; }));
    return client;
  }
  void ExpectEnd(Clock::time_point begin, Clock::duration least) {
    EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
    EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
    const auto taken = Clock::now() - begin;
    EXPECT_GE(taken, least);
    EXPECT_LT(taken, 2 * least + 5s * kSlowBuildFactor);
  }
};

// At more than the least rate (64 KiB in the write timeout), in steps that open the window for less
// than what stands first in line, and so slowly that the system probes it. One good try shows it,
// as others may have the processor.
TEST_F(StalledClientsTest, WhoReadsInSmallStepsThroughASmallWindowGetsAllOfAnAnswer) {
  constexpr auto kTimeout = 3s;
  constexpr size_t kBytes = 500'000;
  Start({.write_timeout = kTimeout});
  const auto read = [&](const std::string& path, size_t* most) {
    for (int i = 0; i < 4 && *most < kBytes; ++i) {
      RawClient slow(server_->port(), kSmallBuffer);
      ASSERT_TRUE(slow.Send(GetRequest(path)));
      const auto begin = Clock::now();
      while (slow.pending().size() < kBytes && slow.ReadAtMost(1 << 10)) {
        std::this_thread::sleep_for(20ms);
      }
      const auto taken = Clock::now() - begin;
      *most = std::max(*most, slow.ReadResponse().body.size());
      if (*most == kBytes) {
        EXPECT_GT(taken, 2 * kTimeout) << "too quick to show anything";
      }
    }
  };
  size_t whole = 0, streamed = 0;
  std::thread other([&] { read("/whole?500000", &whole); });
  read("/stream?500", &streamed);
  other.join();
  EXPECT_EQ(whole, kBytes);
  EXPECT_EQ(streamed, kBytes);
}

// What is left stands in the socket, and the stream has no more: no write of the server's waits.
TEST_F(StalledClientsTest, WhoTakesNothingOfAStreamThatStandsStillLosesIt) {
  Start({.write_timeout = 1s});
  const auto begin = Clock::now();
  const auto client = Begin();
  ExpectEnd(begin, 1s);
  EXPECT_TRUE(client->ReadEnd());
  EXPECT_LT(client->pending().size(), Begun::kBytes) << "the socket kept no more for it";
}

TEST_F(StalledClientsTest, WhoHasReadAllOfAStreamThatStandsStillKeepsIt) {
  Start({.write_timeout = 300ms});
  const auto client = Begin();
  ASSERT_TRUE(client->ReadPast(Begun::kBytes));
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(observed_.alive, 1);
}

TEST_F(StalledClientsTest, WhoIsUnpluggedWithSomethingToTakeLosesItsRequest) {
  Start({.write_timeout = 1s});
  RawClient client(server_->port());
  client.Send(GetRequest("/held?begun"));
  ASSERT_TRUE(client.ReadUntil("begun"));
  if (!client.Unplug()) GTEST_SKIP() << "the system has no filters for sockets";
  const auto begin = Clock::now();
  observed_.go = true;
  ExpectEnd(begin, 500ms);
}

TEST_F(StalledClientsTest, WhoIsUnpluggedWhileItWaitsLosesItsRequest) {
  // A probe after one second, and the last word five later.
  Start({.write_timeout = 6s, .probe_after = 1s});
  RawClient client = Connect();
  client.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  if (!client.Unplug()) GTEST_SKIP() << "the system has no filters for sockets";
  ExpectEnd(Clock::now(), 5s);
}

// The connection would be kept for a next request.
TEST_F(StalledClientsTest, WhoLeavesTheEndOfAnAnswerLosesItsConnection) {
  Start({.idle_timeout = 0ms, .write_timeout = 2s});
  const auto begin = Clock::now();
  RawClient client(server_->port(), kSmallBuffer);
  client.Send(GetRequest("/whole?" + std::to_string(Begun::kBytes)));
  ASSERT_TRUE(Eventually([&] { return observed_.parts == 1; }));
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
  EXPECT_LT(Clock::now() - begin, 2s) << "all of it has gone to the socket";
  ExpectEnd(begin, 2s);
}

}  // namespace
}  // namespace refrain::server::http
