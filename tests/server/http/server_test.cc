// The HTTP server alone, over real sockets, with handlers made for each test.

#include "server/http/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
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
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  RawClient client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Send(GetRequest("/hello"));
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
    EXPECT_TRUE(response.headers.contains("date"));
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  RawClient client = Connect();
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += PostRequest("/echo", std::to_string(i));
  client.Send(requests);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.ReadResponse().body, std::to_string(i));
}

// Requests that arrive while the answer before them is still being made are not lost.
TEST_F(HttpServerTest, KeepsRequestsSentDuringAnAnswer) {
  Start();
  RawClient client = Connect();
  client.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  for (int i = 0; i < 10; ++i) {
    client.Send(PostRequest("/echo", std::to_string(i)));
    std::this_thread::sleep_for(2ms);
  }
  observed_.go = true;
  EXPECT_EQ(client.ReadResponse().body, "held");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(client.ReadResponse().body, std::to_string(i));
}

// Some clients end a body with one (RFC 9112 section 2.2).
TEST_F(HttpServerTest, IgnoresAnEmptyLineInFrontOfARequest) {
  Start();
  RawClient client = Connect();
  client.Send(PostRequest("/echo", "a") + "\r\n" + PostRequest("/echo", "b") + "\r");
  EXPECT_EQ(client.ReadResponse().body, "a");
  EXPECT_EQ(client.ReadResponse().body, "b");
  std::this_thread::sleep_for(20ms);
  client.Send("\n" + PostRequest("/echo", "c"));
  EXPECT_EQ(client.ReadResponse().body, "c");
  client.Send("\r\n\r\n" + GetRequest("/hello"));
  EXPECT_EQ(client.ReadResponse().status, 400);
  EXPECT_EQ(Once("\r\n" + GetRequest("/hello")).body, "hello") << "in front of the first";
}

TEST_F(HttpServerTest, AcceptsRequestsByteByByte) {
  Start();
  RawClient client = Connect();
  for (const char byte : PostRequest("/echo", "slow but fine")) {
    client.Send(std::string_view(&byte, 1));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(client.ReadResponse().body, "slow but fine");
}

TEST_F(HttpServerTest, JoinsChunkedBodies) {
  Start();
  const RawResponse response = Once(
      "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\n\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "hello world");
}

TEST_F(HttpServerTest, SaysContinueToWhoExpectsIt) {
  Start();
  RawClient client = Connect();
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  EXPECT_EQ(client.ReadResponse(/*head_only=*/true).status, 100);
  client.Send("body");
  EXPECT_EQ(client.ReadResponse().body, "body");
}

TEST_F(HttpServerTest, SaysContinueToNobodyOfHttp10) {
  Start();
  RawClient client = Connect();
  client.Send("POST /echo HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody");
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "body");
}

TEST_F(HttpServerTest, StreamsInChunksAndStaysUsable) {
  Start();
  RawClient client = Connect();
  client.Send(GetRequest("/stream?100"));
  const RawResponse response = client.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.chunks, 100);
  EXPECT_EQ(response.body.size(), 100'000u);
  client.Send(GetRequest("/hello"));
  EXPECT_EQ(client.ReadResponse().body, "hello");
}

TEST_F(HttpServerTest, EndsStreamsOfHttp10WithTheConnection) {
  Start();
  RawClient client = Connect();
  client.Send("GET /stream?3 HTTP/1.0\r\n\r\n");
  const RawResponse response = client.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.chunks, 0);
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_EQ(response.body.size(), 3000u);
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  Start();
  RawClient client = Connect();
  client.Send("HEAD /hello HTTP/1.1\r\nHost: t\r\n\r\n" + GetRequest("/hello"));
  const RawResponse head = client.ReadResponse(/*head_only=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "5");
  EXPECT_EQ(client.ReadResponse().body, "hello");
}

TEST_F(HttpServerTest, RoutesByMethodAndDecodedPath) {
  Start();
  EXPECT_EQ(Once(GetRequest("/where?a=%20b")).body, "/where?a=%20b");
  EXPECT_EQ(Once(GetRequest("/under/a%2Fb/c")).body, "/under/a/b/c");
  EXPECT_EQ(Once(GetRequest("http://t:80/where?a=b")).body, "/where?a=b");  // as to a proxy
  EXPECT_EQ(Once(GetRequest("HTTPS://t/hello")).body, "hello");
  EXPECT_EQ(Once(GetRequest("http://t?a")).status, 404);
  EXPECT_EQ(Once(GetRequest("/nowhere")).status, 404);
  EXPECT_EQ(Once(GetRequest("/under/")).status, 404);
  EXPECT_EQ(Once(GetRequest("/bad%zz")).status, 400);
  const RawResponse wrong_method = Once(PostRequest("/hello", "{}"));
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers.at("allow"), "GET, HEAD");
}

// RFC 9112 section 3.2.2: whatever the field says.
TEST_F(HttpServerTest, AnAbsoluteTargetNamesTheHost) {
  router_.Add({"GET", "/host", [](const Request& request) {
                 return MakeReply({}, std::string(request.Header("host")));
               }});
  Start();
  EXPECT_EQ(Once(GetRequest("/host", "Host: t\r\n")).status, 400) << "two of them";
  const auto host_of = [this](const std::string& target, const std::string& fields) {
    return Once("GET " + target + fields + "\r\n\r\n").body;
  };
  EXPECT_EQ(host_of("/host", " HTTP/1.1\r\nHost: a:80"), "a:80");
  EXPECT_EQ(host_of("http://b/host", " HTTP/1.1\r\nHost: a:80"), "b");
  EXPECT_EQ(host_of("HTTPS://[::1]:90/host?c", " HTTP/1.1\r\nhost: a"), "[::1]:90");
  EXPECT_EQ(host_of("http://b/host", " HTTP/1.0"), "b");
  EXPECT_EQ(host_of("/host", " HTTP/1.0"), "");
}

TEST_F(HttpServerTest, EchoesGoodRequestIdsAndReplacesOthers) {
  Start();
  EXPECT_EQ(Once(GetRequest("/hello", "x-request-id: abc-1\r\n")).headers.at("x-request-id"),
            "abc-1");
  const std::string made = Once(GetRequest("/hello")).headers.at("x-request-id");
  EXPECT_FALSE(made.empty());
  EXPECT_NE(Once(GetRequest("/hello")).headers.at("x-request-id"), made);
  const std::string too_long = "X-Request-Id: " + std::string(200, 'x') + "\r\n";
  EXPECT_LT(Once(GetRequest("/hello", too_long)).headers.at("x-request-id").size(), 100u);
}

// As far as it was read.
TEST_F(HttpServerTest, EchoesTheRequestIdOfWhatItCannotRead) {
  Start();
  const std::string id = "X-Request-Id: abc-1\r\n", bad_length = "Content-Length: -1\r\n";
  const auto id_of = [this](const std::string& fields, int status) {
    RawResponse response = Once("POST /echo HTTP/1.1\r\nHost: t\r\n" + fields + "\r\n");
    EXPECT_EQ(response.status, status) << fields;
    return response.headers["x-request-id"];
  };
  EXPECT_EQ(id_of(id + bad_length, 400), "abc-1");
  EXPECT_EQ(id_of(id + "Transfer-Encoding: gzip\r\n", 400), "abc-1");
  EXPECT_EQ(id_of("Transfer-Encoding: gzip\r\n" + id, 400), "abc-1");
  EXPECT_EQ(id_of(id + "A: " + std::string(40'000, 'x') + "\r\n", 431), "abc-1");
  for (const std::string& fields :
       {bad_length, bad_length + id, "X-Request-Id: a b\r\n" + bad_length}) {
    const std::string made = id_of(fields, 400);
    EXPECT_NE(made, "") << fields;
    EXPECT_NE(made, "abc-1") << fields;
    EXPECT_NE(made, "a b") << fields;
  }
}

TEST_F(HttpServerTest, RefusesMalformedRequests) {
  Start();
  const char* const kBad[] = {
      "nonsense\r\n\r\n",
      "GET /hello HTTP/1.1\r\n\r\n",                        // no Host
      "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",  // two
      "GET /hello HTTP/1.1\r\nHost: a\r\nbroken header\r\n\r\n",
      "GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
      "GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
      ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
       "0\r\n\r\n"),
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
  };
  for (const char* bytes : kBad) {
    const RawResponse response = Once(bytes);
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_EQ(response.headers.at("connection"), "close") << bytes;
  }
  EXPECT_EQ(Once(GetRequest("/hello")).status, 200);
}

TEST_F(HttpServerTest, RefusesHeadersAndBodiesBeyondTheLimits) {
  Start({.header_bytes = 2048, .body_bytes = 10'000});
  EXPECT_EQ(Once(PostRequest("/echo", std::string(10'000, 'x'))).status, 200);
  EXPECT_EQ(Once(PostRequest("/echo", std::string(10'001, 'x'))).status, 413);
  EXPECT_EQ(Once(GetRequest("/hello", "A: " + std::string(3000, 'x') + "\r\n")).status, 431);
  std::string chunked = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) chunked += "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  EXPECT_EQ(Once(chunked + "0\r\n\r\n").status, 413);
}

// Of four bytes each, for which some 160 are kept.
TEST_F(HttpServerTest, RefusesHeadersOfTooManyFields) {
  Start();
  const auto header_of = [](int fields) {
    std::string header = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n";
    for (int i = 2; i < fields; ++i) header += "a:\r\n";
    return header;
  };
  const std::string body = "\r\n1\r\nx\r\n0\r\n";
  EXPECT_EQ(Once(header_of(256) + body + "\r\n").status, 200);
  // Also before its end has come, and behind a body.
  for (const std::string& request :
       {header_of(257) + body + "\r\n", header_of(300), header_of(256) + body + "a:\r\n\r\n"}) {
    RawResponse response = Once(request);
    EXPECT_EQ(response.status, 431);
    EXPECT_EQ(response.headers["connection"], "close");
    EXPECT_NE(response.body.find("more than 256 fields"), std::string::npos) << response.body;
  }
}

// A client that sends its whole body before it reads must see the refusal, not a reset.
TEST_F(HttpServerTest, LetsTheSenderOfAHugeBodySeeTheRefusal) {
  Start({.body_bytes = 1000});
  EXPECT_EQ(Once(PostRequest("/echo", std::string(4 << 20, 'x'))).status, 413);
}

TEST_F(HttpServerTest, HandlesLargeBodiesOnWorkers) {
  Start();
  const std::string body(1 << 20, 'y');
  EXPECT_EQ(Once(PostRequest("/echo", body)).body, body);
}

// Runs out of memory in the middle of its answer: in a wakeup, or on a worker thread.
class Throws final : public Reply {
 public:
  explicit Throws(bool on_worker) : on_worker_(on_worker) {}
  void Start(std::function<void()> wakeup) override { wakeup_ = std::move(wakeup); }
  ReplyPart Next() override {
    if (!std::exchange(begun_, true)) {
      std::thread([wakeup = wakeup_] {
        std::this_thread::sleep_for(20ms);
        wakeup();
      }).detach();
      return {ResponseHead{}, "begun"};
    }
    if (!std::exchange(waited_, true)) return {};
    if (!on_worker_) throw std::bad_alloc();
    ReplyPart part;
    part.make = []() -> ReplyPart { throw std::bad_alloc(); };
    return part;
  }

 private:
  const bool on_worker_;
  std::function<void()> wakeup_;
  bool begun_ = false;
  bool waited_ = false;
};

TEST_F(HttpServerTest, AReplyThatThrowsEndsItsConnectionOnly) {
  router_.Add({"GET", "/throws-later", [](Request request) -> std::unique_ptr<Reply> {
                 return std::make_unique<Throws>(request.query == "worker");
               }});
  Start();
  for (const char* where : {"wakeup", "worker"}) {
    RawClient client = Connect();
    client.Send(GetRequest(std::string("/throws-later?") + where));
    EXPECT_TRUE(client.ReadUntil("begun"));
    EXPECT_TRUE(client.ReadEnd()) << where;
    EXPECT_EQ(Once(GetRequest("/hello")).body, "hello");
  }
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, AProbeDoesNotWaitForSlowHandlers) {
  Start();
  std::vector<RawClient> others;
  for (int i = 0; i < 4; ++i) {  // more than there are workers
    others.push_back(Connect());
    others.back().Send(GetRequest("/blocked"));
  }
  EXPECT_EQ(Once(GetRequest("/probe")).body, "probe");
  observed_.go = true;
  for (RawClient& other : others) EXPECT_EQ(other.ReadResponse().body, "blocked");
}

TEST_F(HttpServerTest, DoesNotHoldUpOthersWhileASlowHandlerRuns) {
  Start({.io_threads = 1});
  RawClient slow = Connect();
  slow.Send(GetRequest("/blocked"));
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  EXPECT_EQ(Once(GetRequest("/hello")).status, 200);
  observed_.go = true;
  EXPECT_EQ(slow.ReadResponse().body, "blocked");
}

// Who may not ask is told so before the body is taken in; a small body does not cost the
// connection.
TEST_F(HttpServerTest, TheFilterAnswersBeforeTheBodyIsRead) {
  ServerOptions options;
  options.filter = [](const Request& request) -> std::unique_ptr<Reply> {
    if (request.Header("x-key") == "right") return nullptr;
    EXPECT_TRUE(request.body.empty());
    return MakeReply({.status = 401}, "no");
  };
  Start(std::move(options));
  RawClient client = Connect();
  client.Send(PostRequest("/echo", "small"));
  EXPECT_EQ(client.ReadResponse().status, 401);
  client.Send(PostRequest("/echo", "small", "X-Key: right\r\n"));
  EXPECT_EQ(client.ReadResponse().body, "small");

  // Of a megabyte only the beginning is there, and the answer comes all the same.
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nbegin");
  const RawResponse refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("connection"), "close");

  RawClient polite = Connect();
  polite.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(polite.ReadResponse().status, 401);
  RawClient chunked = Connect();
  chunked.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbe");
  EXPECT_EQ(chunked.ReadResponse().status, 401);
}

TEST_F(HttpServerTest, SurvivesAHandlerThatThrows) {
  Start();
  EXPECT_EQ(Once(GetRequest("/throws")).status, 500);
  EXPECT_EQ(Once(GetRequest("/hello")).status, 200);
}

TEST_F(HttpServerTest, DropsTheReplyWhenTheClientGoesAway) {
  Start();
  void (RawClient::*const kWays[])() = {&RawClient::Close, &RawClient::HalfClose,
                                        &RawClient::Reset};
  for (const auto way : kWays) {
    RawClient client = Connect();
    client.Send(GetRequest("/held"));
    ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
    (client.*way)();
    EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
  }
}

TEST_F(HttpServerTest, DropsTheReplyWhenTheClientGoesAwayAfterSendingAhead) {
  Start();
  RawClient client = Connect();
  client.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  client.Send(GetRequest("/hello") + GetRequest("/hello"));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
}

TEST_F(HttpServerTest, DropsTheReplyWhenTheClientVanishesWithoutAWord) {
  Start({.probe_after = 1s});
  RawClient client = Connect();
  client.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  if (!client.Vanish()) GTEST_SKIP() << "needs CAP_NET_ADMIN";
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
}

TEST_F(HttpServerTest, DropsTheReplyWhenTheClientGoesAwayDuringAStream) {
  Start();
  RawClient client = Connect();
  client.Send(GetRequest("/stream?1000000"));
  ASSERT_TRUE(client.ReadUntil("aaaa"));
  client.Reset();
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
}

// The stream stops being asked for parts once the socket is full, and others go on meanwhile.
TEST_F(HttpServerTest, ASlowReaderHoldsUpOnlyItself) {
  Start({.io_threads = 1});
  RawClient slow(server_->port(), /*receive_buffer_bytes=*/4096);
  slow.Send(GetRequest("/stream?100000"));
  int before = -1;
  ASSERT_TRUE(Eventually([&] {
    const int now = observed_.parts;
    const bool stalled = now > 0 && now == before;
    before = now;
    return stalled;
  }));
  EXPECT_LT(observed_.parts, 50'000);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Once(GetRequest("/hello")).status, 200);
  const RawResponse response = slow.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), 100'000'000u);
}

TEST_F(HttpServerTest, TellsAReplyOfItsLastBytesBeforeTheClientHasThem) {
  Start();
  RawClient client = Connect();
  int answers = 0;
  for (int round = 0; round < 20; ++round) {
    for (const char* path : {"/stream?1", "/stream?50", "/whole?10", "/whole?65536", "/whole?65537",
                             "/whole?1000000", "/whole?10000000"}) {
      client.Send(GetRequest(path));
      ASSERT_TRUE(client.ReadResponse().complete);
      ASSERT_EQ(observed_.ending, ++answers) << path;
    }
  }
}

TEST_F(HttpServerTest, AnAnswerThatIsNotReadIsNotEnding) {
  Start();
  RawClient slow(server_->port(), /*receive_buffer_bytes=*/4096);
  slow.Send(GetRequest("/whole?100000000"));
  ASSERT_TRUE(Eventually([&] { return observed_.parts == 1; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(observed_.ending, 0);
  slow.Close();
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
  EXPECT_EQ(observed_.ending, 0);
}

TEST_F(HttpServerTest, ClosesWhoDoesNotReadAtAll) {
  Start({.write_timeout = 200ms});
  RawClient client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(GetRequest("/stream?100000"));
  ASSERT_TRUE(Eventually([&] { return observed_.parts > 0; }));
  EXPECT_TRUE(Eventually([&] { return observed_.alive == 0; }));
  EXPECT_LT(observed_.parts, 100'000);
}

TEST_F(HttpServerTest, ClosesWhoDoesNotFinishAHeader) {
  Start({.header_timeout = 200ms});
  RawClient client = Connect();
  const auto start = std::chrono::steady_clock::now();
  client.Send("GET /hello HTTP/1.1\r\n");
  // Each byte in time does not help: the limit is for the whole header.
  while (std::chrono::steady_clock::now() - start < 3s && client.Send("X-A: b\r\n")) {
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, ClosesWhoDoesNotFinishABody) {
  Start({.body_timeout = 200ms});
  RawClient client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(HttpServerTest, ClosesIdleConnections) {
  Start({.idle_timeout = 200ms});
  RawClient client = Connect();
  client.Send(GetRequest("/hello"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(HttpServerTest, ServesHundredsOfKeptConnections) {
  Start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 400; ++i) clients.push_back(Connect());
  for (int round = 0; round < 3; ++round) {
    for (RawClient& client : clients) ASSERT_TRUE(client.Send(GetRequest("/hello")));
    for (RawClient& client : clients) ASSERT_EQ(client.ReadResponse().status, 200);
  }
  EXPECT_EQ(server_->connections(), 400);
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  Start();
  ServerOptions options;
  options.port = server_->port();
  options.error_body = [](int, std::string_view) { return std::string(); };
  const auto second = Server::Start(options, &router_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("Address already in use"), std::string::npos)
      << second.status();
}

}  // namespace
}  // namespace refrain::server::http
