// How parts of answers come to the socket.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "server/http/server.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/eventually.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

class HandoverTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    router_.Add({"GET", "/small", [](Request) { return MakeReply({}, "small"); }});
    options.error_body = [](int, std::string_view message) { return std::string(message); };
    server_ = *Server::Start(std::move(options), &router_);
  }

  Router router_;
  std::unique_ptr<Server> server_;
};

// Nagle's algorithm would hold a token back until the one before is acknowledged.
TEST_F(HandoverTest, SocketsSendSmallPartsAtOnceAndNoticeClientsThatVanish) {
  Start();
  RawClient client(server_->port());
  client.Send(GetRequest("/small"));
  ASSERT_EQ(client.ReadResponse().status, 200);
  int server_ends = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in here{}, there{};
    socklen_t here_size = sizeof(here), there_size = sizeof(there);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0 ||
        here.sin_family != AF_INET || ntohs(here.sin_port) != server_->port()) {
      continue;
    }
    ++server_ends;
    int no_delay = 0;
    socklen_t size = sizeof(no_delay);
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
    EXPECT_NE(no_delay, 0);
    // Of clients that vanish while nothing is sent: probes for as long as writing may take.
    const auto option = [&](int level, int name) {
      int value = 0;
      EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0) << name;
      return value;
    };
    EXPECT_NE(option(SOL_SOCKET, SO_KEEPALIVE), 0);
    const int from_s = option(IPPROTO_TCP, TCP_KEEPIDLE);
    const int each_s = option(IPPROTO_TCP, TCP_KEEPINTVL);
    EXPECT_EQ(from_s + each_s * option(IPPROTO_TCP, TCP_KEEPCNT), 120);
    // See StallWatch: it resets clients that read in small steps.
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  }
  EXPECT_EQ(server_ends, 1);
}

// Whether a part goes out at once or has to wait until the client has read.
TEST_F(HandoverTest, TellsHowLongPartsWaited) {
  constexpr int kParts = 50;
  class Dated final : public Reply {
   public:
    ReplyPart Next() override {
      ReplyPart part;
      part.body = std::string(256 << 10, 'x');
      part.due_since = std::chrono::steady_clock::now() - 1h;
      part.last = ++parts_ == kParts;
      return part;
    }

   private:
    int parts_ = 0;
  };
  router_.Add({"GET", "/dated", [](Request) { return std::make_unique<Dated>(); }});
  std::atomic<int> told{0};
  ServerOptions options;
  options.on_part_sent = [&](std::chrono::nanoseconds delay) {
    if (delay > 59min && delay < 61min) ++told;
  };
  Start(std::move(options));
  RawClient client(server_->port());
  client.Send(GetRequest("/dated"));
  const RawResponse response = client.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), size_t{kParts} * (256 << 10));
  // Told after the client may have read.
  EXPECT_TRUE(Eventually([&] { return told >= kParts; }));
  EXPECT_EQ(told, kParts);
}

}  // namespace
}  // namespace refrain::server::http
