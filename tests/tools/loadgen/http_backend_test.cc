#include "tools/loadgen/http_backend.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace refrain::loadgen {
namespace {

// Refuses each request when its head is there, and keeps the connection as if it had read the rest,
// or closes it.
class HastyServer {
 public:
  explicit HastyServer(bool keeps = true)
      : keeps_(keeps), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HastyServer() { Stop(); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Connections that have sent a request.
  int Stop() {
    if (thread_.joinable()) {
      shutdown(listener_, SHUT_RDWR);  // ends accept
      thread_.join();
      close(listener_);
    }
    return num_connections_;
  }

 private:
  void Serve() {
    std::vector<int> kept;
    for (int connection; (connection = accept(listener_, nullptr, nullptr)) >= 0;) {
      if (Refuse(connection)) ++num_connections_;
      if (keeps_) {
        kept.push_back(connection);
      } else {
        close(connection);
      }
    }
    for (const int connection : kept) close(connection);
  }

  // False for a connection that ends without a request: the back end tries whether one listens.
  static bool Refuse(int connection) {
    std::string head;
    while (head.find("\r\n\r\n") == std::string::npos) {
      char buffer[256];
      const ssize_t bytes = read(connection, buffer, sizeof(buffer));
      if (bytes <= 0) return false;
      head.append(buffer, static_cast<size_t>(bytes));
    }
    constexpr std::string_view kAnswer =
        "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n"
        "Content-Type: application/json\r\n\r\n{}";
    EXPECT_EQ(write(connection, kAnswer.data(), kAnswer.size()),
              static_cast<ssize_t>(kAnswer.size()));
    return true;
  }

  const bool keeps_;
  int listener_;
  uint16_t port_ = 0;
  int num_connections_ = 0;  // the thread's until it is joined
  std::thread thread_;
};

// Starts a second request when the first has ended, and stops the loop behind that.
class TwoRequests final : public AnswerSink {
 public:
  TwoRequests(AsioLoop* loop, Backend* backend, double pause_s = 0)
      : loop_(loop), backend_(backend), pause_s_(pause_s) {}
  void Start(size_t prompt_tokens) {
    GenerationRequest request;
    request.token_ids.assign(prompt_tokens, 1);
    backend_->Start(backend_->Encode(request), this);
  }
  void OnTokens(double, int32_t, std::string_view, std::span<const int32_t>) override {}
  void OnEnd(double, const AnswerEnd& end) override {
    failures += end.failure.has_value() ? end.failure->kind + " " : "none ";
    resent += end.resent ? 1 : 0;
    if (!std::exchange(is_second_, true)) {
      loop_->CallAt(loop_->NowS() + pause_s_, [this] { Start(1); });
    } else {
      loop_->Stop();
    }
  }

  std::string failures;
  int resent = 0;

 private:
  AsioLoop* loop_;
  Backend* backend_;
  double pause_s_;
  bool is_second_ = false;
};

// The rest of the first request would go into the second one.
TEST(HttpBackend, AConnectionThatIsStillWrittenToIsNotUsedAgain) {
  HastyServer server;
  AsioLoop loop;
  const auto target = ParseTarget(server.url());
  ASSERT_TRUE(target.ok()) << target.status();
  auto backend = MakeHttpBackend(&loop, {.target = *target, .timeout_s = 10});
  ASSERT_TRUE(backend.ok()) << backend.status();
  TwoRequests requests(&loop, backend->get());
  constexpr size_t kBeyondAnySocketBuffer = 16 << 20;
  requests.Start(kBeyondAnySocketBuffer);
  loop.Run();
  EXPECT_EQ(requests.failures, "http_429 http_429 ");
  EXPECT_EQ(server.Stop(), 2);
}

// A server may close what is idle: nothing is lost then, and nothing goes out twice.
TEST(HttpBackend, AConnectionThatWasClosedWhileItWasIdleIsReplaced) {
  HastyServer server(/*keeps=*/false);
  AsioLoop loop;
  auto backend = MakeHttpBackend(&loop, {.target = *ParseTarget(server.url()), .timeout_s = 10});
  ASSERT_TRUE(backend.ok()) << backend.status();
  TwoRequests requests(&loop, backend->get(), /*pause_s=*/0.3);
  requests.Start(1);
  loop.Run();
  EXPECT_EQ(requests.failures, "http_429 http_429 ");
  EXPECT_EQ(requests.resent, 0);
  EXPECT_EQ(server.Stop(), 2);
}

}  // namespace
}  // namespace refrain::loadgen
