// Connections of the gRPC front end: how much one may carry, and what happens when one breaks.

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "tests/server/grpc/server_fixture.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::grpc::ClientContext;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A TCP proxy of one connection, which can be made to break: both sides see a reset, as where a
// cable, a NAT or a proxy in between fails.
class BreakableProxy {
 public:
  explicit BreakableProxy(uint16_t server_port) : server_port_(server_port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    socklen_t size = sizeof(address);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~BreakableProxy() {
    Break();
    ::close(listener_);
  }

  uint16_t port() const { return port_; }
  // Ends the connection and takes no other.
  void Break() {
    broken_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    while (!broken_ && !Readable(listener_)) {
    }
    if (broken_) return;
    const int client = ::accept(listener_, nullptr, nullptr);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(server_port_);
    bool alive =
        ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    while (alive && !broken_) alive = Copy(client, server) && Copy(server, client);
    for (const int end : {client, server}) {
      const linger reset = {.l_onoff = 1, .l_linger = 0};
      ::setsockopt(end, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      ::close(end);
    }
  }

  static bool Readable(int file) {
    pollfd one = {.fd = file, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 5) > 0;
  }

  static bool Copy(int from, int to) {
    if (!Readable(from)) return true;
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::recv(from, bytes.data(), bytes.size(), 0);
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t some =
          ::send(to, bytes.data() + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
      if (some <= 0) return false;
      sent += some;
    }
    return count > 0;
  }

  const uint16_t server_port_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> broken_{false};
  std::thread thread_;
};

class GrpcConnections : public GrpcServerTest {
 protected:
  // A connection of its own, of messages of any size.
  static std::unique_ptr<v1::Inference::Stub> Connect(uint16_t port) {
    ::grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    own.SetMaxReceiveMessageSize(-1);
    return v1::Inference::NewStub(::grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials(), own));
  }

  static v1::GenerateRequest TextRequest(std::string text) {
    v1::GenerateRequest request;
    request.mutable_text()->set_text(std::move(text));
    request.mutable_params()->mutable_stop()->set_max_tokens(4000);
    return request;
  }

  static ::grpc::StatusCode CodeOf(v1::Inference::Stub* stub, const std::string& text,
                                   std::chrono::milliseconds patience) {
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    const auto reader = stub->Generate(&context, TextRequest(text));
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    return reader->Finish().error_code();
  }
};

TEST_F(GrpcConnections, ABrokenConnectionEndsARequestThatHasNoTokenYet) {
  Start();
  BreakableProxy proxy(server_->port());
  const auto stub = Connect(proxy.port());
  ClientContext context;
  const auto reader = stub->Generate(&context, TextRequest("[[hold]]x"));
  ASSERT_TRUE(engine_.WaitForRunning(1));
  proxy.Break();
  EXPECT_TRUE(engine_.WaitForCancelled(1));
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), ::grpc::UNAVAILABLE) << "not what the client asked for";
}

TEST_F(GrpcConnections, ABrokenConnectionEndsAllRequestsThatRunOnIt) {
  Start();
  BreakableProxy proxy(server_->port());
  const auto broken = Connect(proxy.port());
  const auto whole = Connect(server_->port());
  std::array<ClientContext, 4> contexts;
  std::vector<std::unique_ptr<::grpc::ClientReader<v1::GenerateResponse>>> readers;
  const v1::GenerateRequest request = TextRequest("[[delay_ms=5]]" + std::string(3000, 'x'));
  for (size_t i = 0; i < contexts.size(); ++i) {
    readers.push_back((i == 0 ? whole : broken)->Generate(&contexts[i], request));
    v1::GenerateResponse message;
    ASSERT_TRUE(readers.back()->Read(&message));
  }
  proxy.Break();
  EXPECT_TRUE(engine_.WaitForCancelled(3));
  v1::GenerateResponse message;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(readers[0]->Read(&message)) << "the other goes on";
  EXPECT_EQ(engine_.cancelled(), 3);
  contexts[0].TryCancel();
}

TEST_F(GrpcConnections, ACallBeyondWhatAConnectionCarriesWaitsAtTheClient) {
  Start({.calls_per_connection = 2});
  const auto stub = Connect(server_->port());
  std::array<ClientContext, 2> contexts;
  std::vector<std::unique_ptr<::grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (ClientContext& context : contexts) {
    readers.push_back(stub->Generate(&context, TextRequest("[[hold]]x")));
  }
  ASSERT_TRUE(engine_.WaitForRunning(2));
  EXPECT_EQ(CodeOf(stub.get(), "third", 300ms), ::grpc::DEADLINE_EXCEEDED);
  EXPECT_EQ(engine_.submitted(), 2);
  // Another connection has its own.
  EXPECT_EQ(CodeOf(Connect(server_->port()).get(), "elsewhere", 10s), ::grpc::OK);
  contexts[0].TryCancel();
  EXPECT_EQ(CodeOf(stub.get(), "third", 10s), ::grpc::OK);
  contexts[1].TryCancel();
}

TEST_F(GrpcConnections, AMessageOverTheLimitIsRefusedBeforeItIsRead) {
  Start({.message_bytes = 10'000});
  const auto stub = Connect(server_->port());
  EXPECT_EQ(CodeOf(stub.get(), std::string(10'000, 'x'), 10s), ::grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(engine_.submitted(), 0);
  EXPECT_EQ(CodeOf(stub.get(), "short", 10s), ::grpc::OK);
}

// Eight connections send 12 MiB each to a server that has 2 MiB for all of them.
TEST_F(GrpcConnections, WhatTheMemoryHasNoRoomForIsRefusedAndOthersGoOn) {
  Start({.memory_bytes = 2 << 20});
  std::atomic<int> refused = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      const auto code = CodeOf(Connect(server_->port()).get(), std::string(12 << 20, 'x'), 20s);
      refused += code == ::grpc::RESOURCE_EXHAUSTED ? 1 : 0;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GE(refused, 1);
  EXPECT_EQ(CodeOf(Connect(server_->port()).get(), "short", 10s), ::grpc::OK);
}

}  // namespace
}  // namespace refrain::server::rpc
