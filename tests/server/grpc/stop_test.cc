// The end of a gRPC server with clients that are connected: none of their calls is cancelled.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "server/access/gate.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::refrain::testing::RawClient;

class GrpcStop : public ::testing::Test {
 public:
  ~GrpcStop() override {
    if (server_ != nullptr) server_->Stop(0ms);
  }

 protected:
  void Start(ServerOptions options) {
    options.host = "127.0.0.1";
    auto server = Server::Start(options, gate_.get(), &log_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetEngine(&engine_);
  }

  // A connection of its own.
  std::unique_ptr<v1::Inference::Stub> Connect() const {
    ::grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel =
        ::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                    ::grpc::InsecureChannelCredentials(), arguments);
    EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + 10s));
    return v1::Inference::NewStub(channel);
  }

  static ::grpc::Status Call(v1::Inference::Stub* stub) {
    v1::TokenizeRequest request;
    request.set_text("abc");
    v1::TokenizeResponse response;
    ::grpc::ClientContext context;
    return stub->Tokenize(&context, request, &response);
  }

  const std::unique_ptr<access::Gate> gate_ = access::MakeOpenGate();
  Log log_{LogFormat::kText, LogLevel::kError};
  testing::FakeEngine engine_;
  std::unique_ptr<Server> server_;
};

// A client connects, and calls a moment later.
TEST_F(GrpcStop, AnswersWhoHasJustConnected) {
  Start({.last_requests = 60s});
  const uint16_t port = server_->port();
  auto fresh = Connect();
  std::thread stopper([&] { server_->Stop(60s); });
  while (RawClient(port).connected()) std::this_thread::sleep_for(1ms);  // until it has begun
  std::this_thread::sleep_for(150ms);
  const ::grpc::Status status = Call(fresh.get());
  EXPECT_EQ(status.error_code(), ::grpc::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the server is shutting down");
  fresh.reset();  // nobody is connected any more
  stopper.join();
}

TEST_F(GrpcStop, CancelsNoCallThatComesAsItEnds) {
  for (int round = 0; round < 20; ++round) {
    Start({.last_requests = 20ms});
    std::vector<std::thread> clients;
    std::atomic<int> others{0};
    std::atomic<bool> stopped{false};
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([this, &others, &stopped, stub = Connect()] {
        while (!stopped) {
          const ::grpc::Status status = Call(stub.get());
          if (status.ok() || status.error_code() == ::grpc::UNAVAILABLE) continue;
          ++others;
          ADD_FAILURE() << status.error_code() << ": " << status.error_message();
        }
      });
    }
    std::this_thread::sleep_for(20ms);
    server_->Stop(10s);
    stopped = true;
    for (std::thread& client : clients) client.join();
    ASSERT_EQ(others, 0) << round;
  }
}

}  // namespace
}  // namespace refrain::server::rpc
