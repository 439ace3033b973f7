// Clients that cost connections and patience, a thousand at a time: nobody else waits for them.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/http/server.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/answer_times.h"
#include "tests/support/eventually.h"
#include "tests/support/rounds.h"
#include "tests/support/slow_build.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::AnswerTimes;
using ::refrain::testing::GetRequest;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::MostRoundsKeep;
using ::refrain::testing::PostRequest;
using ::refrain::testing::ProcessorWait;
using ::refrain::testing::RawClient;
using namespace std::chrono_literals;

// Endless, as fast as it is taken; counts those that live.
class Flood final : public Reply {
 public:
  explicit Flood(std::atomic<int>* alive) : alive_(alive) { ++*alive_; }
  ~Flood() override { --*alive_; }
  ReplyPart Next() override {
    ReplyPart part;
    if (std::exchange(first_, false)) part.head = ResponseHead{.content_type = "text/plain"};
    part.body = std::string(16 << 10, 'x');
    return part;
  }

 private:
  std::atomic<int>* const alive_;
  bool first_ = true;
};

class SlowClientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Both ends of each connection are this process's.
    rlimit files{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 3000) GTEST_SKIP() << "at most " << files.rlim_max << " open files";
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
    router_.Add({"GET", "/hello", [](Request) { return MakeReply({}, "hello"); }});
    router_.Add({"GET", "/flood", [this](Request) { return std::make_unique<Flood>(&floods_); }});
    router_.Add(
        {"GET", "/whole", [](Request) { return MakeReply({}, std::string(kWholeBytes, 'w')); }});
    router_.Add(
        {"POST", "/echo", [](Request request) { return MakeReply({}, std::move(request.body)); }});
    ServerOptions options;
    // The crowd is to last as long as the others are measured.
    options.header_timeout = options.body_timeout = 120s;
    options.error_body = [](int, std::string_view message) { return std::string(message); };
    options.filter = [this](const Request& request) -> std::unique_ptr<Reply> {
      if (!request.FindHeader("x-wrong-key").has_value()) return nullptr;
      ++turned_away_;
      return MakeReply({.status = 401}, "no");
    };
    options.on_exchange = [this](const Exchange& exchange) {
      if (exchange.status == 431) ++turned_away_;
    };
    auto server = Server::Start(std::move(options), &router_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  RawClient Connect() { return RawClient(server_->port()); }

  // How long answers take a well-behaved client, on a kept connection and each on a fresh one.
  void ExpectQuickAnswers(const char* beside) {
    double worst_ms = 0;
    constexpr auto kMeasured = kSlowBuildFactor > 1 ? 60s : 20s;
    EXPECT_TRUE(MostRoundsKeep([&] { return AnswersAreQuick(beside, &worst_ms); }, kMeasured))
        << beside;
    EXPECT_LT(worst_ms, 1000.0 * kSlowBuildFactor) << beside;
  }

  // Of one round; nothing where the machine was too busy to tell. `worst_ms` becomes the longest of
  // all.
  std::optional<bool> AnswersAreQuick(const char* beside, double* worst_ms) {
    constexpr double kLimitMs = 5.0 * kSlowBuildFactor;
    AnswerTimes kept_times(kLimitMs), fresh_times(kLimitMs);
    ProcessorWait wait;
    const auto measure = [&](RawClient* client, AnswerTimes* times) {
      const double ms = Measure(client);
      times->Add(ms, wait.TakeMs());
      *worst_ms = std::max(*worst_ms, ms);
    };
    RawClient kept = Connect();
    for (int i = 0; i < 100; ++i) {
      measure(&kept, &kept_times);
      RawClient fresh = Connect();
      measure(&fresh, &fresh_times);
    }
    std::printf("%s: kept: %d quick, %d held up, %d unclear; fresh: %d, %d, %d\n", beside,
                kept_times.quick(), kept_times.held_up(), kept_times.unclear(), fresh_times.quick(),
                fresh_times.held_up(), fresh_times.unclear());
    if (!kept_times.says_something() || !fresh_times.says_something()) return std::nullopt;
    return kept_times.keeps_limit() && fresh_times.keeps_limit();
  }

  static double Measure(RawClient* client) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(client->Send(GetRequest("/hello")));
    EXPECT_EQ(client->ReadResponse().body, "hello");
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  bool EventuallyConnected(int clients) {
    return testing::Eventually([&] { return server_->connections() == clients; });
  }

  // More than sockets keep for a client that does not read.
  static constexpr size_t kWholeBytes = 16 << 20;

  std::atomic<int> turned_away_{0};
  std::atomic<int> floods_{0};
  Router router_;
  std::unique_ptr<Server> server_;
  std::vector<RawClient> crowd_;
};

TEST_F(SlowClientsTest, AThousandIdleConnectionsDelayNobody) {
  ExpectQuickAnswers("alone");
  for (int i = 0; i < 1000; ++i) {
    crowd_.push_back(Connect());
    crowd_.back().Send(GetRequest("/hello"));
  }
  for (RawClient& client : crowd_) EXPECT_EQ(client.ReadResponse().body, "hello");
  ExpectQuickAnswers("beside 1,000 idle keep-alive connections");
  for (RawClient& client : crowd_) {  // and each of them is still good
    client.Send(GetRequest("/hello"));
    EXPECT_EQ(client.ReadResponse().body, "hello");
  }
}

// A byte at a time for as long as the others are measured: half of them never end their header, the
// other half their body.
TEST_F(SlowClientsTest, HeadersAndBodiesThatTrickleInDelayNobody) {
  const std::string header = "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: ";
  const std::string post = PostRequest("/echo", std::string(1'000'000, 'b'));
  const std::string head_of_post = post.substr(0, post.find("\r\n\r\n") + 4);
  for (int i = 0; i < 500; ++i) {
    crowd_.push_back(Connect());
    crowd_.back().Send(i % 2 == 0 ? header : head_of_post);
  }
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread trickle([&] {
    for (; !stop; ++rounds) {
      for (RawClient& client : crowd_) client.Send("b");
      // A build that is slow to read them is not to be drowned by what no network brings.
      std::this_thread::sleep_for(5ms * kSlowBuildFactor);
    }
  });
  do {
    ExpectQuickAnswers("beside 500 that send a byte at a time");
  } while (rounds < 3 && !HasFailure());  // they are to be sending meanwhile
  EXPECT_TRUE(EventuallyConnected(500)) << "and none had been given up: " << server_->connections();
  stop = true;
  trickle.join();
}

// Headers that are too long, and the beginnings of bodies that are too large, all the time.
TEST_F(SlowClientsTest, HeadersAndBodiesBeyondTheLimitsDelayNobody) {
  const ServerOptions limits;
  const std::string requests[] = {
      "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(limits.header_bytes, 'x'),
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(limits.body_bytes + 1) +
          "\r\n\r\n" + std::string(64 << 10, 'b')};
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::thread beyond([&] {
    while (!stop) {
      std::vector<RawClient> clients;
      for (int i = 0; i < 100; ++i) {
        clients.push_back(Connect());
        clients.back().Send(requests[i % 2]);
      }
      for (int i = 0; i < 100; ++i) {
        answered += clients[i].ReadResponse().status == (i % 2 == 0 ? 431 : 413);
      }
      // A build that is slow to read them is not to be drowned by what no network brings.
      std::this_thread::sleep_for(20ms * kSlowBuildFactor);
    }
  });
  do {
    ExpectQuickAnswers("beside 100 that are beyond the limits, again and again");
  } while (answered < 300 && !HasFailure());  // they are to be answered meanwhile
  stop = true;
  beyond.join();
  EXPECT_TRUE(EventuallyConnected(0)) << server_->connections();
}

TEST_F(SlowClientsTest, ClientsThatDoNotReadDelayNobody) {
  for (int i = 0; i < 100; ++i) {
    crowd_.emplace_back(server_->port(), /*receive_buffer_bytes=*/4096);
    crowd_.back().Send(GetRequest("/flood"));
  }
  ExpectQuickAnswers("beside 100 that do not read");
}

// Behind what it has not read it closes its sending half and keeps its end open.
TEST_F(SlowClientsTest, AHalfCloseEndsAnAnswerThatIsNotRead) {
  RawClient client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(GetRequest("/flood"));
  ASSERT_TRUE(client.ReadPast(0));
  std::this_thread::sleep_for(100ms);  // until the sockets are full
  EXPECT_EQ(floods_, 1);
  client.HalfClose();
  EXPECT_TRUE(testing::Eventually([&] { return floods_ == 0; })) << "long before the write timeout";
  EXPECT_TRUE(EventuallyConnected(0)) << server_->connections();
}

// Nothing is saved by breaking it off, and some clients half-close behind their last request.
TEST_F(SlowClientsTest, AHalfCloseLeavesAnAnswerThatIsThereAsAWhole) {
  RawClient client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(GetRequest("/whole"));
  ASSERT_TRUE(client.ReadPast(0));
  client.HalfClose();
  std::this_thread::sleep_for(100ms);
  const testing::RawResponse response = client.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), kWholeBytes);
}

// 32 KiB from who has no key, of many fields or of long ones, and a body that does not come.
TEST_F(SlowClientsTest, HeadersOfStrangersHoldLittleMemory) {
  constexpr int kClients = 200;
  constexpr size_t kBytesOfOne = 48 << 10;
  const std::string first =
      "POST /echo HTTP/1.1\r\nHost: x\r\nX-Wrong-Key: 1\r\nContent-Length: 9\r\n";
  std::string many, large = "x: " + std::string(6000, 'x') + "\r\n";
  for (int i = 0; i < 6'500; ++i) many += "a:\r\n";
  for (int i = 0; i < 240; ++i)
    large += "x" + std::to_string(i) + ": " + std::string(90, 'x') + "\r\n";
  for (const std::string& fields : {many, large}) {
    const size_t before = AllocatedBytes();
    turned_away_ = 0;
    for (int i = 0; i < kClients; ++i) {
      crowd_.push_back(Connect());
      ASSERT_TRUE(crowd_.back().Send(first + fields + "\r\n"));
    }
    ASSERT_TRUE(testing::Eventually([&] { return turned_away_ == kClients; })) << turned_away_;
    EXPECT_TRUE(testing::Eventually([&] {
      return AllocatedBytes() <= before + kClients * kBytesOfOne;
    })) << (AllocatedBytes() - before) / kClients
        << " bytes for each of " << fields.size();
    if (fields == large) {
      EXPECT_EQ(server_->connections(), kClients) << "while they wait";
    }
    crowd_.clear();
    EXPECT_TRUE(EventuallyConnected(0)) << server_->connections();
  }
}

// Half-open: some have sent their FIN, some have vanished with a reset; their places come back.
TEST_F(SlowClientsTest, HalfOpenConnectionsAreCleanedUpAndDelayNobody) {
  for (int i = 0; i < 300; ++i) {
    crowd_.push_back(Connect());
    if (i % 3 == 0) {
      crowd_.back().HalfClose();
    } else if (i % 3 == 1) {
      crowd_.back().Send("GET /hello HTTP/1.1\r\nHo");
      crowd_.back().HalfClose();
    } else {
      crowd_.back().Send(GetRequest("/flood"));
      crowd_.back().Reset();
    }
  }
  ExpectQuickAnswers("beside 300 half-open connections");
  EXPECT_TRUE(EventuallyConnected(0)) << server_->connections();
}

}  // namespace
}  // namespace refrain::server::http
