// What the HTTP server tells of every exchange.

#include "server/http/exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/http/server_fixture.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;

// The exchanges that a server reported, as text.
class ExchangeList {
 public:
  ExchangeObserver observer() {
    return [this](const Exchange& exchange) {
      const std::lock_guard<std::mutex> lock(mutex_);
      EXPECT_GE(exchange.seconds, 0);
      seconds_ = exchange.seconds;
      response_bytes_ = exchange.response_bytes;
      std::string text;
      for (const std::string_view part :
           {exchange.method, exchange.route, exchange.path, exchange.principal}) {
        text.append(part.empty() ? "-" : part).append(" ");
      }
      lines_.push_back(text + std::to_string(exchange.status) + " " +
                       std::to_string(exchange.request_body_bytes) +
                       (exchange.complete ? "" : " cut"));
      ids_.emplace_back(exchange.request_id);
    };
  }
  // Waits for `count` lines.
  std::vector<std::string> Lines(size_t count) {
    Eventually([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      return lines_.size() >= count;
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }
  std::string last_id() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ids_.back();
  }
  double last_seconds() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return seconds_;
  }
  size_t last_response_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return response_bytes_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<std::string> ids_;
  double seconds_ = 0;
  size_t response_bytes_ = 0;
};

using ExchangeTest = HttpServerTest;

TEST_F(ExchangeTest, ReportsEveryExchange) {
  ExchangeList seen;
  Start({.header_bytes = 2048, .body_bytes = 10'000, .on_exchange = seen.observer()});
  using Lines = std::vector<std::string>;
  Lines expected;
  const auto after = [&](std::string_view bytes, std::string line) {
    Once(bytes);
    expected.push_back(std::move(line));
    EXPECT_EQ(seen.Lines(expected.size()), expected);
  };
  after(PostRequest("/echo", "12345", "x-request-id: mine\r\n"), "POST /echo /echo - 200 5");
  EXPECT_EQ(seen.last_id(), "mine");
  after(GetRequest("/under/a%20b?q"), "GET /under/* /under/a b - 200 0");
  after(GetRequest("/whoami"), "GET /whoami /whoami team-a 403 0");
  after(GetRequest("/throws"), "GET /throws /throws - 500 0");
  after(GetRequest("/nowhere"), "GET - /nowhere - 404 0");
  after(PostRequest("/hello", "{}"), "POST - /hello - 405 2");
  after(GetRequest("/bad%zz"), "GET - - - 400 0");
  after("nonsense\r\n\r\n", "- - - - 400 0");
  after(PostRequest("/echo", std::string(10'001, 'x'), "x-request-id: large\r\n"),
        "POST /echo /echo - 413 10001");
  EXPECT_EQ(seen.last_id(), "large");
  const std::string chunk = "1000\r\n" + std::string(0x1000, 'x') + "\r\n";
  after(
      "POST /echo HTTP/1.1\r\nHost: t\r\nX-Request-Id: chunks\r\nTransfer-Encoding: "
      "chunked\r\n\r\n" +
          chunk + chunk + chunk + "0\r\n\r\n",
      "POST /echo /echo - 413 8192");
  EXPECT_EQ(seen.last_id(), "chunks");
  after(GetRequest("/hello", "A: " + std::string(3000, 'x') + "\r\n"), "- - - - 431 0");
  after(GetRequest("/slow"), "GET /slow /slow - 200 0");
  EXPECT_GE(seen.last_seconds(), 0.3);
  after(GetRequest("/stream?100"), "GET /stream /stream - 200 0");
  EXPECT_GT(seen.last_response_bytes(), 100'000u);
  EXPECT_LT(seen.last_response_bytes(), 102'000u);
}

// Where nothing of an answer has been sent it becomes a 500; either way it is told of.
TEST_F(ExchangeTest, ReportsAnswersThatCannotBeMade) {
  class ThrowsAtOnce final : public Reply {
   public:
    ReplyPart Next() override { throw std::runtime_error("of the reply"); }
  };
  router_.Add({"GET", "/throws-in-next",
               [](Request) -> std::unique_ptr<Reply> { return std::make_unique<ThrowsAtOnce>(); }});
  router_.Add({"GET", "/throws-on-worker", [](Request) -> std::unique_ptr<Reply> {
                 return MakeReplyOnWorker(
                     []() -> std::unique_ptr<Reply> { throw std::runtime_error("of the worker"); });
               }});
  ExchangeList seen;
  std::mutex mutex;
  std::vector<std::string> faults;
  Start({.on_exchange = seen.observer(), .on_fault = [&](std::string_view what) {
           const std::lock_guard lock(mutex);
           faults.emplace_back(what);
         }});
  EXPECT_EQ(Once(GetRequest("/throws-in-next")).body, "500 internal error");
  EXPECT_EQ(Once(GetRequest("/throws-on-worker")).body, "500 internal error");
  const std::vector<std::string> lines = {"GET /throws-in-next /throws-in-next - 500 0",
                                          "GET /throws-on-worker /throws-on-worker - 500 0"};
  EXPECT_EQ(seen.Lines(2), lines);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(faults, (std::vector<std::string>{"of the reply", "of the worker"}));
}

// Nor is there memory to say so, on the thread of the others' connections: it ends alone.
TEST_F(ExchangeTest, AnAnswerThatCannotEvenBeRefusedEndsItsConnectionOnly) {
  class ThrowsWhenWoken final : public Reply {
   public:
    ~ThrowsWhenWoken() override { waker_.join(); }
    void Start(std::function<void()> wakeup) override {
      waker_ = std::thread([wakeup = std::move(wakeup)] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        wakeup();
      });
    }
    ReplyPart Next() override {
      if (std::exchange(asked_, true)) throw std::bad_alloc();
      return {};
    }

   private:
    std::thread waker_;
    bool asked_ = false;
  };
  router_.Add({"GET", "/throws-when-woken", [](Request) -> std::unique_ptr<Reply> {
                 return std::make_unique<ThrowsWhenWoken>();
               }});
  const auto throws = []() -> std::string { throw std::bad_alloc(); };
  Start({.error_body = [&](int, std::string_view) { return throws(); },
         .on_fault = [&](std::string_view) { throws(); }});
  for (const char* path : {"/throws-when-woken", "/throws"}) {
    RawClient client = Connect();
    client.Send(GetRequest(path));
    EXPECT_TRUE(client.ReadEnd()) << path;
    EXPECT_EQ(Once(GetRequest("/hello")).body, "hello");
  }
}

TEST_F(ExchangeTest, ReportsExchangesOfClientsThatWentAway) {
  ExchangeList seen;
  Start({.on_exchange = seen.observer()});
  RawClient early = Connect();
  early.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  early.Close();
  EXPECT_EQ(seen.Lines(1).at(0), "GET /held /held - 499 0 cut");
  RawClient late = Connect();
  late.Send(GetRequest("/stream?1000000"));
  ASSERT_TRUE(late.ReadUntil("aaaa"));
  late.Reset();
  EXPECT_EQ(seen.Lines(2).at(1), "GET /stream /stream - 200 0 cut");
  RawClient half = Connect();
  half.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nabc");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until it has been read
  half.Reset();
  EXPECT_EQ(seen.Lines(3).at(2), "POST /echo /echo - 499 3 cut");
  RawClient header = Connect();
  header.Send("POST /ec");
  header.Reset();
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
  EXPECT_EQ(seen.Lines(3).size(), 3u);
}

TEST_F(ExchangeTest, ReportsWhoWentAwayBeforeItWasToldToGoOn) {
  ExchangeList seen;
  std::atomic<bool> reached{false}, gone{false};
  ServerOptions options{.on_exchange = seen.observer()};
  options.filter = [&](const Request&) -> std::unique_ptr<Reply> {
    reached = true;
    EXPECT_TRUE(Eventually([&] { return gone.load(); }));
    return nullptr;
  };
  Start(std::move(options));
  RawClient client = Connect();
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return reached.load(); }));
  client.Reset();
  gone = true;
  const std::vector<std::string> lines = seen.Lines(1);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "POST /echo /echo - 499 0 cut");
}

// Its client may still read: it is told, and the connection ends at once.
TEST_F(ExchangeTest, ReportsRequestsThatAreCutShort) {
  ExchangeList seen;
  Start({.on_exchange = seen.observer()});
  const std::string post = "POST /echo HTTP/1.1\r\nHost: t\r\n";
  const std::pair<std::string, std::string> cuts[] = {
      {post + "Content-Length: 100\r\n\r\nabc", "POST /echo /echo - 400 3"},
      {post + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", "POST /echo /echo - 400 5"},
      {post + "Content-Le", "- - - - 400 0"},
      {"P", "- - - - 400 0"},
  };
  std::vector<std::string> expected;
  for (const auto& [bytes, line] : cuts) {
    RawClient client = Connect();
    client.Send(bytes);
    client.HalfClose();
    EXPECT_EQ(client.ReadResponse().status, 400) << bytes;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(client.ReadEnd()) << bytes;
    EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; })) << bytes;
    // Not as long as one who may still be sending is given.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500)) << bytes;
    expected.push_back(line);
    EXPECT_EQ(seen.Lines(expected.size()), expected);
  }
}

TEST_F(ExchangeTest, ReportsNothingWhereNoRequestHasBegun) {
  ExchangeList seen;
  Start({.on_exchange = seen.observer()});
  for (const char* bytes : {"", "\r", "\r\n"}) {
    RawClient client = Connect();
    client.Send(bytes);
    client.HalfClose();
    EXPECT_TRUE(client.ReadEnd());
    EXPECT_EQ(client.pending(), "");
  }
  EXPECT_EQ(Once(GetRequest("/hello")).status, 200);
  EXPECT_EQ(seen.Lines(1), std::vector<std::string>{"GET /hello /hello - 200 0"});
}

TEST_F(ExchangeTest, ReportsBodiesThatDidNotCome) {
  ExchangeList seen;
  Start({.body_timeout = std::chrono::milliseconds(200), .on_exchange = seen.observer()});
  RawClient client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_TRUE(client.ReadEnd());
  EXPECT_EQ(seen.Lines(1).at(0), "POST /echo /echo - 408 3 cut");
}

}  // namespace
}  // namespace refrain::server::http
