// gRPC connections that do nothing: they end, are bounded, and delay nobody, here or over HTTP.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "server/http/server.h"
#include "tests/server/grpc/server_fixture.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/rounds.h"
#include "tests/support/slow_build.h"

namespace refrain::server::rpc {
namespace {

using ::grpc::ClientContext;
using ::refrain::testing::GetRequest;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::RawClient;
using ::refrain::testing::SomeRoundKeeps;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// What a client of HTTP/2 says first: the preface and empty settings.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr std::string_view kPing("\0\0\10\6\0\0\0\0\0pingpong", 17);

class IdleConnections : public GrpcServerTest {
 protected:
  static ::grpc::StatusCode CodeOf(const std::shared_ptr<::grpc::Channel>& channel,
                                   const std::string& text = "hi",
                                   std::chrono::seconds patience = 20s) {
    const auto stub = v1::Inference::NewStub(channel);
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    v1::GenerateRequest request;
    request.mutable_text()->set_text(text);
    request.mutable_params()->mutable_stop()->set_max_tokens(4000);
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    return reader->Finish().error_code();
  }

  // A client that has greeted and says nothing more.
  RawClient Greet() const {
    RawClient client(server_->port());
    EXPECT_TRUE(client.Send(kPreface));
    EXPECT_TRUE(client.ReadPast(9)) << "the server's settings";
    return client;
  }
};

TEST_F(IdleConnections, OneWithoutACallIsClosedAndOneWithACallIsNot) {
  Start({.idle_timeout = 300ms});
  const auto begin = Clock::now();
  RawClient idle = Greet();
  std::thread busy([&] {
    // 200 tokens of 5 ms each: a second.
    EXPECT_EQ(CodeOf(Connect(), "[[delay_ms=5]]" + std::string(200, 'x')), ::grpc::OK);
  });
  EXPECT_TRUE(idle.ReadEnd());
  EXPECT_GE(Clock::now() - begin, 250ms);
  busy.join();
  const auto channel = Connect();
  EXPECT_EQ(CodeOf(channel), ::grpc::OK);
  const auto until = std::chrono::system_clock::now() + 30s;
  ASSERT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, until)) << "it is closed, too";
  EXPECT_EQ(CodeOf(channel), ::grpc::OK) << "a library's channel connects again";
}

TEST_F(IdleConnections, OneThatNeverGreetsIsClosed) {
  Start({.handshake_timeout = 300ms});
  RawClient silent(server_->port());
  RawClient half(server_->port());
  half.Send(kPreface.substr(0, 10));
  EXPECT_TRUE(silent.ReadEnd());
  EXPECT_TRUE(half.ReadEnd());
}

// A client's library that pings once a second: more often than gRPC allows by itself, which ends
// the connection with the fourth.
class PingingClients : public IdleConnections {
 protected:
  std::shared_ptr<::grpc::Channel> ConnectWithPings() const {
    ::grpc::ChannelArguments pings;
    pings.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    pings.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
    pings.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    pings.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    return ::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                       ::grpc::InsecureChannelCredentials(), pings);
  }
};

TEST_F(PingingClients, DoNotLoseACallThatWaits) {
  Start({.ping_interval = 500ms});
  EXPECT_EQ(CodeOf(ConnectWithPings(), "[[hold]]x", 8s), ::grpc::DEADLINE_EXCEEDED);
}

TEST_F(PingingClients, KeepTheirConnectionBetweenCalls) {
  Start({.ping_interval = 500ms});
  const auto channel = ConnectWithPings();
  ASSERT_EQ(CodeOf(channel), ::grpc::OK);
  EXPECT_FALSE(
      channel->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + 8s))
      << "it was ended";
  EXPECT_EQ(CodeOf(channel), ::grpc::OK);
}

TEST_F(PingingClients, LoseItWhereTheyPingTooOften) {
  Start({.ping_interval = 60s});
  const auto channel = ConnectWithPings();
  ASSERT_EQ(CodeOf(channel), ::grpc::OK);
  EXPECT_TRUE(
      channel->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + 20s));
}

// A call of Generate whose message never comes: HEADERS that end the header, not the stream.
std::string CallWithoutMessage() {
  const auto text = [](std::string_view value) {
    return static_cast<char>(value.size()) + std::string(value);
  };
  // HPACK: names and values by index, the others as literals that are not indexed.
  const std::string header = std::string("\x83\x86", 2) +  // POST, http
                             "\x04" + text("/refrain.v1.Inference/Generate") + "\x01" +
                             text("test") + std::string("\x0f\x10", 2) + text("application/grpc") +
                             std::string(1, '\0') + text("te") + text("trailers");
  return std::string({0, 0, static_cast<char>(header.size()), 1, 4, 0, 0, 0, 1}) + header;
}

TEST_F(IdleConnections, OneThatWithholdsAMessageEndsWhereCallsHaveATimeLimit) {
  Start({.max_age = 200ms, .call_timeout = 300ms, .grace = 200ms});
  const auto begin = Clock::now();
  RawClient client = Greet();
  ASSERT_TRUE(client.Send(CallWithoutMessage()));
  EXPECT_TRUE(client.ReadEnd(20s));
  EXPECT_GE(Clock::now() - begin, 500ms) << "it was refused, not waited for";
}

TEST_F(IdleConnections, AnOldConnectionEndsWithItsLastCall) {
  Start({.max_age = 200ms});
  const auto channel = Connect();
  EXPECT_EQ(CodeOf(channel, "[[delay_ms=5]]" + std::string(200, 'x')), ::grpc::OK);
  const auto other = Connect();
  EXPECT_EQ(CodeOf(other), ::grpc::OK);
  EXPECT_TRUE(other->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + 5s));
  EXPECT_EQ(CodeOf(other), ::grpc::OK) << "a library's channel connects again";
}

TEST_F(IdleConnections, BeyondTheBoundOneIsClosedAndTheOthersGoOn) {
  Start({.max_connections = 3});
  const auto channel = Connect();
  EXPECT_EQ(CodeOf(channel), ::grpc::OK);
  RawClient second = Greet();
  auto third = std::make_unique<RawClient>(Greet());
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(RawClient(server_->port()).ReadEnd());
  EXPECT_EQ(CodeOf(Connect()), ::grpc::UNAVAILABLE);
  EXPECT_EQ(CodeOf(channel), ::grpc::OK);
  EXPECT_FALSE(second.ReadEnd(50ms));
  third.reset();
  const auto later = Connect();  // it tries again by itself
  EXPECT_TRUE(later->WaitForConnected(std::chrono::system_clock::now() + 20s));
  EXPECT_EQ(CodeOf(later), ::grpc::OK);
}

// Streams of reflection, to which nothing is said.
class ReflectionStreams {
 public:
  ReflectionStreams(const std::shared_ptr<::grpc::Channel>& channel, int count) : stub_(channel) {
    for (int i = 0; i < count; ++i) {
      Stream& stream = streams_.emplace_back();
      stream.call = stub_.PrepareCall(
          &stream.context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
          &queue_);
      stream.call->StartCall(nullptr);
      stream.call->Finish(&stream.status, &stream);
    }
    left_ = 2 * count;
  }
  ~ReflectionStreams() {
    for (Stream& stream : streams_) stream.context.TryCancel();
    while (left_ > 0) Next(Clock::now() + 20s);
    queue_.Shutdown();
  }

  // Whether all of them have begun, and none has ended.
  bool WaitUntilBegun() {
    const auto deadline = Clock::now() + 5s * kSlowBuildFactor;
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (Next(deadline) != nullptr || Clock::now() >= deadline) return false;
    }
    return true;
  }

 private:
  struct Stream {
    ClientContext context;
    std::unique_ptr<::grpc::GenericClientAsyncReaderWriter> call;
    ::grpc::Status status;
  };

  // Null: a stream has begun, or the deadline has passed.
  const Stream* Next(Clock::time_point deadline) {
    void* tag = nullptr;
    bool ok = false;
    const auto wait = std::chrono::system_clock::now() + (deadline - Clock::now());
    if (queue_.AsyncNext(&tag, &ok, wait) != ::grpc::CompletionQueue::GOT_EVENT) return nullptr;
    --left_;
    return static_cast<const Stream*>(tag);
  }

  ::grpc::GenericStub stub_;
  ::grpc::CompletionQueue queue_;
  std::deque<Stream> streams_;
  int left_ = 0;  // events to come
};

auto CountThreads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST_F(IdleConnections, ReflectionStreamsTakeNoThreadsAndNoCallsPlace) {
  constexpr int kStreams = 200;
  Start();
  const auto channel = Connect();
  ASSERT_EQ(CodeOf(channel), ::grpc::OK);
  const auto before = CountThreads();
  {
    ReflectionStreams streams(channel, kStreams);
    EXPECT_TRUE(streams.WaitUntilBegun());
    EXPECT_EQ(CodeOf(channel), ::grpc::OK);
    EXPECT_EQ(CodeOf(Connect()), ::grpc::OK);
    EXPECT_LT(CountThreads(), before + 10);
  }
}

// The middle of fifty, for the machine is shared, in the first round that stays under the limit or
// the best of all; one slow client in the way would cost seconds.
template <typename Measure>
double MedianMs(double limit_ms, const Measure& measure) {
  double best_ms = std::numeric_limits<double>::infinity();
  SomeRoundKeeps([&] {
    std::vector<double> times_ms;
    for (int i = 0; i < 50; ++i) {
      const auto begin = Clock::now();
      measure();
      times_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    std::nth_element(times_ms.begin(), times_ms.begin() + 25, times_ms.end());
    best_ms = std::min(best_ms, times_ms[25]);
    return best_ms < limit_ms;
  });
  return best_ms;
}

TEST_F(IdleConnections, HundredsDelayNoCallAndNoHttp) {
  Start();
  http::Router router;
  router.Add({"GET", "/hello", [](http::Request) { return http::MakeReply({}, "hello"); }});
  http::ServerOptions options;
  options.error_body = [](int, std::string_view message) { return std::string(message); };
  auto http_server = http::Server::Start(std::move(options), &router);
  ASSERT_TRUE(http_server.ok()) << http_server.status();
  std::vector<std::shared_ptr<::grpc::Channel>> channels;
  std::vector<RawClient> raw;
  for (int i = 0; i < 100; ++i) {
    channels.push_back(Connect());
    ASSERT_EQ(CodeOf(channels.back()), ::grpc::OK) << i;
    raw.push_back(Greet());             // greeted, no call
    raw.emplace_back(server_->port());  // TCP alone
    raw.emplace_back(server_->port());  // half of a greeting
    raw.back().Send(kPreface.substr(0, 20));
  }
  constexpr double kHttpMs = 5.0 * kSlowBuildFactor;
  constexpr double kKeptMs = 10.0 * kSlowBuildFactor;
  constexpr double kFreshMs = 20.0 * kSlowBuildFactor;
  RawClient http_client((*http_server)->port());
  const double http_ms = MedianMs(kHttpMs, [&] {
    http_client.Send(GetRequest("/hello"));
    EXPECT_EQ(http_client.ReadResponse().body, "hello");
  });
  const auto channel = Connect();
  const double kept_ms = MedianMs(kKeptMs, [&] { EXPECT_EQ(CodeOf(channel), ::grpc::OK); });
  const double fresh_ms = MedianMs(kFreshMs, [&] { EXPECT_EQ(CodeOf(Connect()), ::grpc::OK); });
  std::printf("beside 400 idle connections: HTTP %.2f ms, gRPC %.2f ms, on a fresh one %.2f ms\n",
              http_ms, kept_ms, fresh_ms);
  EXPECT_LT(http_ms, kHttpMs);
  EXPECT_LT(kept_ms, kKeptMs);
  EXPECT_LT(fresh_ms, kFreshMs);
  // And each of them is still good.
  for (const auto& one : channels) EXPECT_EQ(CodeOf(one), ::grpc::OK);
  for (size_t i = 0; i < raw.size(); i += 3) {
    const size_t before = raw[i].pending().size();
    raw[i].Send(kPing);
    EXPECT_TRUE(raw[i].ReadPast(before)) << i;
  }
}

}  // namespace
}  // namespace refrain::server::rpc
