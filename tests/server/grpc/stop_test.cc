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
#include "tests/server/grpc/server_fixture.h"
#include "tests/server/http/raw_client.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::refrain::testing::RawClient;

class GrpcStop : public GrpcServerTest {
 protected:
  // A connection that is made already.
  std::unique_ptr<v1::Inference::Stub> ConnectNow() const {
    const auto channel = Connect();
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
};

// A client connects, and calls a moment later.
TEST_F(GrpcStop, AnswersWhoHasJustConnected) {
  Start({.last_requests = 60s});
  const uint16_t port = server_->port();
  auto fresh = ConnectNow();
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
      clients.emplace_back([&others, &stopped, stub = ConnectNow()] {
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
