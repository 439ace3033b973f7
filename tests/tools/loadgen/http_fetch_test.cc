// What loadgen asks beside its load ends by its time, whatever the server does.

#include "tools/loadgen/http_fetch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/certificate.h"
#include "tests/support/temporary_directory.h"
#include "tools/loadgen/connecting.h"
#include "tools/loadgen/event_loop.h"
#include "tools/loadgen/http_backend.h"
#include "tools/loadgen/tls_client.h"

namespace refrain::loadgen {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr double kTimeS = 0.5;
// Far more than that, and less than the system's own limits, which are minutes.
constexpr auto kMost = 20s;

// Listens on a free port.
class Listener {
 public:
  explicit Listener(int backlog) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, any, size), 0);
    EXPECT_EQ(listen(fd_, backlog), 0);
    EXPECT_EQ(getsockname(fd_, any, &size), 0);
    endpoint_ = Endpoint(boost::asio::ip::address_v4::loopback(), ntohs(address.sin_port));
  }
  ~Listener() { close(fd_); }

  int fd() const { return fd_; }
  const Endpoint& endpoint() const { return endpoint_; }
  HttpTarget target() const {
    return *ParseTarget("http://127.0.0.1:" + std::to_string(endpoint_.port()));
  }

 private:
  const int fd_;
  Endpoint endpoint_;
};

// One that accepts nobody and whose queue is full: who connects is not answered, as by a firewall
// that drops.
class SilentAddress {
 public:
  SilentAddress() : listener_(/*backlog=*/0) {
    for (int i = 0; i < 8; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      const Endpoint& to = listener_.endpoint();
      if (connect(fd, to.data(), static_cast<socklen_t>(to.size())) != 0) {
        EXPECT_EQ(errno, EINPROGRESS);
      }
      crowd_.push_back(fd);
    }
  }
  ~SilentAddress() {
    for (const int fd : crowd_) close(fd);
  }
  const Listener& listener() const { return listener_; }

 private:
  const Listener listener_;
  std::vector<int> crowd_;
};

// Answers one client with `head`, and then a byte every 20 ms for as long as it is there.
class TricklingServer {
 public:
  explicit TricklingServer(std::string_view head)
      : listener_(/*backlog=*/8), thread_([this, head] { Serve(head); }) {}
  ~TricklingServer() {
    shutdown(listener_.fd(), SHUT_RDWR);  // ends accept
    thread_.join();
  }
  HttpTarget target() const { return listener_.target(); }

 private:
  void Serve(std::string_view head) {
    const int client = accept(listener_.fd(), nullptr, nullptr);
    if (client < 0) return;
    bool there = send(client, head.data(), head.size(), MSG_NOSIGNAL) >= 0;
    for (; there; std::this_thread::sleep_for(20ms)) {
      there = send(client, "x", 1, MSG_NOSIGNAL) == 1;
    }
    close(client);
  }

  const Listener listener_;
  std::thread thread_;
};

TEST(Fetch, EndsByItsTimeThoughSomethingComesAllTheWhile) {
  for (const char* head :
       {"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Endless: "}) {
    TricklingServer server(head);
    const auto begin = Clock::now();
    const auto reply = Fetch(server.target(), {.path = "/metrics", .timeout_s = kTimeS});
    EXPECT_LT(Clock::now() - begin, kMost);
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    EXPECT_NE(reply.status().message().find("cannot read"), std::string::npos) << reply.status();
  }
}

// Sends the pieces to one client, 5 ms apart, and closes.
absl::StatusOr<HttpReply> FetchOf(const std::vector<std::string>& pieces) {
  const Listener listener(/*backlog=*/8);
  std::thread server([&] {
    const int client = accept(listener.fd(), nullptr, nullptr);
    char request[4096];
    EXPECT_GT(recv(client, request, sizeof(request), 0), 0);
    for (const std::string& piece : pieces) {
      EXPECT_EQ(send(client, piece.data(), piece.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(piece.size()));
      std::this_thread::sleep_for(5ms);
    }
    close(client);
  });
  auto reply = Fetch(listener.target(), {.path = "/metrics", .timeout_s = 20});
  server.join();
  return reply;
}

TEST(Fetch, WhatComesAheadOfTheAnswerIsNone) {
  const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
  const std::string hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
  for (const std::vector<std::string>& pieces :
       std::vector<std::vector<std::string>>{{go_on + hints + answer},
                                             {go_on, hints, answer},
                                             {go_on + hints.substr(0, 9), hints.substr(9) + answer},
                                             {answer}}) {
    const auto reply = FetchOf(pieces);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, "hi");
  }
  EXPECT_EQ(FetchOf({"HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n"})->status, 101);
}

TEST(Fetch, SaysThatTheAnswerBrokeOffWhereverItDid) {
  for (const std::string& part :
       std::vector<std::string>{"", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b",
                                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh"}) {
    const auto reply = FetchOf({part});
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    EXPECT_NE(reply.status().message().find("the answer broke off"), std::string::npos) << part;
  }
}

// Scenario: the server reads the request and is gone, as one that dies: TLS is not ended.
TEST(Fetch, SaysThatTheConnectionBrokeWhereTlsWasNotEnded) {
  const testing::TemporaryDirectory folder;
  const testing::PemPair pem = testing::MakeCertificate("test");
  const std::string certificate = folder.path() + "/certificate", key = folder.path() + "/key";
  std::ofstream(certificate) << pem.certificate;
  std::ofstream(key) << pem.key;
  const Listener listener(/*backlog=*/8);
  std::thread server([&] {
    const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()),
                                                               SSL_CTX_free);
    SSL_CTX_use_certificate_file(context.get(), certificate.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM);
    const int client = accept(listener.fd(), nullptr, nullptr);
    const std::unique_ptr<SSL, void (*)(SSL*)> tls(SSL_new(context.get()), SSL_free);
    SSL_set_fd(tls.get(), client);
    char request[4096];
    EXPECT_EQ(SSL_accept(tls.get()), 1);
    EXPECT_GT(SSL_read(tls.get(), request, sizeof(request)), 0);
    close(client);
  });
  HttpTarget target = listener.target();
  target.tls = *TlsClient::Make({.verify = false});
  const auto reply = Fetch(target, {.path = "/metrics", .timeout_s = 20});
  server.join();
  EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
  EXPECT_NE(reply.status().message().find(": cannot read: the connection broke"), std::string::npos)
      << reply.status();
}

TEST(Fetch, EndsByItsTimeWhereNobodyAnswersWhoConnects) {
  const SilentAddress silent;
  const auto begin = Clock::now();
  const auto reply = Fetch(silent.listener().target(), {.path = "/x", .timeout_s = kTimeS});
  EXPECT_LT(Clock::now() - begin, kMost);
  EXPECT_NE(reply.status().message().find("cannot connect"), std::string::npos) << reply.status();
}

TEST(HttpBackend, IsThereInTimeWhereNobodyAnswersWhoConnects) {
  const SilentAddress silent;
  AsioLoop loop;
  const auto begin = Clock::now();
  EXPECT_TRUE(MakeHttpBackend(&loop, {.target = silent.listener().target(), .find_s = kTimeS}).ok())
      << "its requests fail";
  EXPECT_LT(Clock::now() - begin, kMost);
}

TEST(ConnectToFirst, LeavesTimeToOthersThanOneThatDoesNotAnswer) {
  const SilentAddress silent;
  const Listener listener(/*backlog=*/8);
  const auto connected =
      ConnectToFirst({silent.listener().endpoint(), listener.endpoint()}, InSeconds(2));
  ASSERT_TRUE(connected.ok()) << connected.status();
  EXPECT_EQ(connected->address, 1u);
}

TEST(ConnectToFirst, SaysWhyTheLastOneTookNoConnection) {
  const SilentAddress silent;
  Endpoint nobody;
  {
    const Listener listener(/*backlog=*/8);
    nobody = listener.endpoint();
  }
  const auto connected = ConnectToFirst({silent.listener().endpoint(), nobody}, InSeconds(kTimeS));
  EXPECT_EQ(connected.status().message(), "cannot connect: Connection refused");
}

}  // namespace
}  // namespace refrain::loadgen
