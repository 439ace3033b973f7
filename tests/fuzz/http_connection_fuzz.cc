// Bytes that a client sends on one connection, then half-closes: whatever they are, the connection
// comes to its end, and what it sent is nothing or begins as an HTTP answer.

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/byte_budget.h"
#include "server/http/connection.h"
#include "server/http/router.h"
#include "server/task_queue.h"
#include "server/wakeup_queue.h"

namespace {

namespace asio = boost::asio;
namespace http = refrain::server::http;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// An answer in three parts, the second one empty.
class PartsReply final : public http::Reply {
 public:
  void Start(std::function<void()> wakeup) override { wakeup_ = std::move(wakeup); }
  http::ReplyPart Next() override {
    http::ReplyPart part;
    if (next_ == 0) part.head = http::ResponseHead{.content_type = "text/plain"};
    if (next_ != 1) part.body = "part";
    part.last = ++next_ == 3;
    wakeup_();
    return part;
  }

 private:
  std::function<void()> wakeup_;
  int next_ = 0;
};

class Target {
 public:
  Target() {
    options_.header_bytes = 2048;
    options_.body_bytes = 20 << 10;  // bodies over 16 KiB go to a worker thread
    options_.error_body = [](int status, std::string_view message) {
      return std::to_string(status) + " " + std::string(message);
    };
    router_.Add({"GET", "/", [](http::Request) { return http::MakeReply({}, "{}"); }});
    router_.Add({"POST", "/echo", [](http::Request request) {
                   return http::MakeReply({}, std::move(request.body));
                 }});
    router_.Add({"GET", "/parts", [](http::Request) { return std::make_unique<PartsReply>(); }});
    router_.Add({"GET", "/slow",
                 [](http::Request request) { return http::MakeReply({}, request.query); },
                 http::HandlerSpeed::kSlow});
    router_.Add({"GET", "/throws",
                 [](http::Request) -> std::unique_ptr<http::Reply> { throw std::bad_alloc(); }});
  }

  std::string Talk(std::string_view bytes) {
    int ends[2];
    Require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "a socket pair");
    asio::ip::tcp::socket socket(context_);
    socket.assign(asio::ip::tcp::v4(), ends[0]);
    bool ended = false;
    auto connection = std::make_shared<http::Connection>(std::move(socket), &shared_, &wakeups_);
    asio::co_spawn(
        context_,
        [connection = std::move(connection), &ended]() -> asio::awaitable<void> {
          co_await connection->Run();
          ended = true;
        },
        [](const std::exception_ptr& error) { Require(error == nullptr, "Run does not throw"); });

    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::string answer;
    bool sent_all = false;
    while (!ended) {
      if (!sent_all) {
        const ssize_t sent = ::send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
        if (bytes.empty()) {
          ::shutdown(ends[1], SHUT_WR);
          sent_all = true;
        }
      }
      context_.restart();
      if (context_.poll() == 0) context_.run_one_for(std::chrono::milliseconds(1));
      ReadInto(ends[1], &answer);
      Require(std::chrono::steady_clock::now() < deadline, "the connection ends");
    }
    ReadInto(ends[1], &answer);
    ::close(ends[1]);
    return answer;
  }

 private:
  static void ReadInto(int fd, std::string* text) {
    char buffer[4096];
    for (ssize_t bytes = 0; (bytes = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      text->append(buffer, static_cast<size_t>(bytes));
    }
  }

  http::ServerOptions options_;
  http::Router router_;
  // Outlives every connection, as in the server: a worker may still be in it when one has ended.
  asio::io_context context_{1};
  refrain::server::WakeupQueue wakeups_{
      [this](std::function<void()> work) { asio::post(context_, std::move(work)); }};
  refrain::server::TaskQueue workers_{1, refrain::server::TaskQueue::Tasks::kLong};
  http::Connection::Shared shared_{
      options_, router_,  workers_,
      workers_, workers_, std::make_shared<refrain::server::ByteBudget>(64 << 10)};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 64 << 10) return 0;
  static Target& target = *new Target;
  const std::string answer = target.Talk({reinterpret_cast<const char*>(data), size});
  Require(answer.empty() || answer.starts_with("HTTP/1.1 "), "an answer is an HTTP answer");
  return 0;
}
