// gRPC connections that do nothing: they end, are bounded, and delay nobody, here or over HTTP.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "server/grpc/server.h"
#include "server/http/server.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {
namespace {

using ::grpc::ClientContext;
using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
constexpr int kSlowBuildFactor = 20;
#else
constexpr int kSlowBuildFactor = 1;
#endif

// What a client of HTTP/2 says first: the preface and empty settings.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr std::string_view kPing("\0\0\10\6\0\0\0\0\0pingpong", 17);

class IdleConnections : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    options.host = "127.0.0.1";
    auto server = Server::Start(options, gate_.get(), &log_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetEngine(&engine_);
  }
  ~IdleConnections() override {
    if (server_ != nullptr) server_->Stop(0ms);
  }

  // A connection of its own.
  std::shared_ptr<::grpc::Channel> Connect() const {
    ::grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return ::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                       ::grpc::InsecureChannelCredentials(), own);
  }

  static ::grpc::StatusCode CodeOf(const std::shared_ptr<::grpc::Channel>& channel,
                                   const std::string& text = "hi") {
    const auto stub = v1::Inference::NewStub(channel);
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
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

  const std::unique_ptr<access::Gate> gate_ = access::MakeOpenGate();
  Log log_{LogFormat::kText, LogLevel::kError};
  testing::FakeEngine engine_;
  std::unique_ptr<Server> server_;
};

TEST_F(IdleConnections, OneWithoutACallIsClosedAndOneWithACallIsNot) {
  Start({.idle_timeout = 300ms});
  RawClient idle = Greet();
  const auto begin = Clock::now();
  std::thread busy([&] {
    // 200 tokens of 5 ms each: a second.
    EXPECT_EQ(CodeOf(Connect(), "[[delay_ms=5]]" + std::string(200, 'x')), ::grpc::OK);
  });
  EXPECT_TRUE(idle.ReadEnd());
  EXPECT_GE(Clock::now() - begin, 250ms);
  busy.join();
  const auto channel = Connect();
  EXPECT_EQ(CodeOf(channel), ::grpc::OK);
  std::this_thread::sleep_for(600ms);
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

// The middle of fifty, for the machine is shared; one slow client in the way would cost seconds.
template <typename Measure>
double MedianMs(const Measure& measure) {
  std::vector<double> times_ms;
  for (int i = 0; i < 50; ++i) {
    const auto begin = Clock::now();
    measure();
    times_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::nth_element(times_ms.begin(), times_ms.begin() + 25, times_ms.end());
  return times_ms[25];
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
  RawClient http_client((*http_server)->port());
  const double http_ms = MedianMs([&] {
    http_client.Send(GetRequest("/hello"));
    EXPECT_EQ(http_client.ReadResponse().body, "hello");
  });
  const auto channel = Connect();
  const double kept_ms = MedianMs([&] { EXPECT_EQ(CodeOf(channel), ::grpc::OK); });
  const double fresh_ms = MedianMs([&] { EXPECT_EQ(CodeOf(Connect()), ::grpc::OK); });
  std::printf("beside 400 idle connections: HTTP %.2f ms, gRPC %.2f ms, on a fresh one %.2f ms\n",
              http_ms, kept_ms, fresh_ms);
  EXPECT_LT(http_ms, 5.0 * kSlowBuildFactor);
  EXPECT_LT(kept_ms, 10.0 * kSlowBuildFactor);
  EXPECT_LT(fresh_ms, 20.0 * kSlowBuildFactor);
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
