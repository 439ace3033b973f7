// Bodies that are large, many, or slow to leave.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/http/server_fixture.h"
#include "tests/support/allocated_bytes.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

std::unique_ptr<Reply> TakeKey(const Request& request) {
  request.notes->principal = request.Header("x-key");
  return nullptr;
}

class LargeBodies : public HttpServerTest {
 protected:
  // One I/O thread takes turns: when it has served these, it has read what had come before them.
  void WaitUntilRead() {
    for (int i = 0; i < 50; ++i) ASSERT_EQ(Once(GetRequest("/hello")).status, 200);
  }
};

// Keys take turns at the worker threads: nobody waits for all that another one has sent.
TEST_F(LargeBodies, KeysTakeTurnsAtTheWorkers) {
  std::mutex mutex;
  std::vector<std::string> answered;
  const auto note = [&](const Exchange& exchange) {
    if (exchange.route != "/echo") return;
    std::lock_guard lock(mutex);
    answered.emplace_back(exchange.principal);
  };
  ServerOptions options{.io_threads = 1, .worker_threads = 1};
  options.on_exchange = note;
  options.filter = &TakeKey;
  Start(std::move(options));
  RawClient blocker = Connect();
  blocker.Send(GetRequest("/blocked"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  std::vector<RawClient> clients;
  const auto send = [&](const std::string& key) {
    clients.push_back(Connect());
    clients.back().Send(PostRequest("/echo", std::string(20'000, 'b'), "x-key: " + key + "\r\n"));
    WaitUntilRead();
  };
  for (int i = 0; i < 10; ++i) send("many");
  send("few");
  observed_.go = true;
  ASSERT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return answered.size() == 11;
  }));
  const auto few = std::find(answered.begin(), answered.end(), "few");
  EXPECT_LE(few - answered.begin(), 3);  // second at the worker; what is sent may pass
}

// Nobody is there to get an answer: neither its body nor its turn is taken from others.
TEST_F(LargeBodies, WhoLeavesWhileItWaitsForAWorkerIsNotHandled) {
  std::atomic<int> handled = 0;
  router_.Add({"POST", "/count", [&](const Request&) {
                 ++handled;
                 return MakeReply({}, "counted");
               }});
  Start({.io_threads = 1, .worker_threads = 1, .bodies_bytes = 100 << 10});
  RawClient blocker = Connect();
  blocker.Send(GetRequest("/blocked"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  const std::string request = PostRequest("/count", std::string(60 << 10, 'b'));
  // One that is taken in waits, and is not answered.
  const auto is_taken_in = [&](RawClient* client) {
    client->Send(request);
    WaitUntilRead();
    client->ReadEnd(50ms);
    return client->pending().empty();
  };
  RawClient waiting = Connect();
  EXPECT_TRUE(is_taken_in(&waiting));
  RawClient refused = Connect();
  EXPECT_FALSE(is_taken_in(&refused));
  waiting.Close();
  std::unique_ptr<RawClient> next;
  EXPECT_TRUE(Eventually([&] {
    next = std::make_unique<RawClient>(server_->port());
    return is_taken_in(next.get());
  }));
  observed_.go = true;
  EXPECT_EQ(next->ReadResponse().body, "counted");
  EXPECT_EQ(handled, 1);
  EXPECT_EQ(blocker.ReadResponse().body, "blocked");
}

// What is sent of a body counts, whether or not the rest ever comes.
TEST_F(LargeBodies, RefusesMoreBytesThanItMayHold) {
  Start({.io_threads = 1, .bodies_bytes = 200 << 10});
  const std::string large = PostRequest("/echo", std::string(100 << 10, 'b'));
  std::vector<RawClient> halves;
  for (int i = 0; i < 3; ++i) {
    halves.push_back(Connect());
    halves.back().Send(std::string_view(large).substr(0, 60 << 10));
  }
  WaitUntilRead();
  const auto refused = [&] {
    const RawResponse response = Once(large);
    EXPECT_TRUE(response.status == 503 || response.status == 200) << response.status;
    if (response.status == 503) {
      EXPECT_EQ(response.headers.at("retry-after"), "1");
      EXPECT_NE(response.body.find("204800 (limits.bodies_bytes)"), std::string::npos);
    }
    return response.status == 503;
  };
  EXPECT_TRUE(Eventually(refused));
  EXPECT_EQ(Once(PostRequest("/echo", "small")).body, "small");
  // What goes comes back, and is enough for who was there before.
  halves.pop_back();
  EXPECT_TRUE(Eventually(
      [&] { return Once(PostRequest("/echo", std::string(60 << 10, 'c'))).status == 200; }));
  halves[0].Send(std::string_view(large).substr(60 << 10));
  EXPECT_EQ(halves[0].ReadResponse().body.size(), 100u << 10);
  halves.clear();
  EXPECT_TRUE(Eventually([&] { return !refused(); }));
}

// What nothing reads takes no place: it is refused by its header.
TEST_F(LargeBodies, ThoseThatNothingReadsAreNotRead) {
  const auto hello = [](const Request&) { return MakeReply({}, "hello"); };
  router_.Add({.method = "POST", .path = "/poke", .handler = hello, .reads_body = false});
  Start({.io_threads = 1, .bodies_bytes = 200 << 10});
  std::vector<RawClient> halves;
  for (const std::string path : {"/poke", "/hello"}) {
    std::string large = PostRequest(path, std::string(150 << 10, 'b'));
    if (path == "/hello") large.replace(0, 4, "GET");
    for (int i = 0; i < 2; ++i) {
      halves.push_back(Connect());
      halves.back().Send(std::string_view(large).substr(0, 120 << 10));
      EXPECT_EQ(halves.back().ReadResponse().status, 413) << path;
    }
    EXPECT_EQ(Once(PostRequest("/echo", std::string(150 << 10, 'c'))).status, 200) << path;
  }
  EXPECT_EQ(Once(PostRequest("/poke", "")).body, "hello");
  EXPECT_EQ(Once(PostRequest("/poke", std::string(16 << 10, 'x'))).body, "hello");
  EXPECT_EQ(Once("POST /poke HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n").status,
            413);
}

TEST_F(LargeBodies, ThoseOfOneKeyLeaveRoomForThoseOfAnother) {
  ServerOptions options{.io_threads = 1, .bodies_bytes = 200 << 10};
  options.on_exchange = [](const Exchange&) {};  // else nobody asks whose a request is
  options.filter = &TakeKey;
  Start(std::move(options));
  const auto request = [](std::string_view key) {
    return PostRequest("/echo", std::string(60 << 10, 'b'), "X-Key: " + std::string(key) + "\r\n");
  };
  const std::string unfinished = request("a").substr(0, 60 << 10);
  std::vector<RawClient> halves;
  for (int i = 0; i < 4; ++i) {
    halves.push_back(Connect());
    halves.back().Send(unfinished);
  }
  WaitUntilRead();
  EXPECT_TRUE(Eventually([&] { return Once(request("a")).status == 503; }));
  EXPECT_EQ(Once(request("b")).status, 200);
}

TEST_F(LargeBodies, OneThatIsOnlyPromisedTakesNothing) {
  Start({.io_threads = 1, .bodies_bytes = 200 << 10});
  std::vector<RawClient> promises;
  for (int i = 0; i < 5; ++i) {
    promises.push_back(Connect());
    promises.back().Send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\nabc");
  }
  WaitUntilRead();
  EXPECT_EQ(Once(PostRequest("/echo", std::string(150 << 10, 'b'))).status, 200);
}

// Only its beginning is there, and the answer comes all the same: nothing of it is taken in.
TEST_F(HttpServerTest, RefusesALargeBodyThatNothingReadsBeforeItComes) {
  Start();
  const std::string kLength = " HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\nbegin";
  const std::string kChunked = " HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbe";
  const std::pair<std::string, int> kRefused[] = {
      {"POST /nowhere", 404}, {"POST /hello", 405}, {"GET /hello", 413}, {"HEAD /hello", 413}};
  for (const auto& [what, status] : kRefused) {
    for (const std::string& rest : {kLength, kChunked}) {
      RawClient client = Connect();
      client.Send(what + rest);
      const RawResponse response = client.ReadResponse(/*head_only=*/what.starts_with("HEAD"));
      EXPECT_EQ(response.status, status) << what << rest;
      EXPECT_EQ(response.headers.at("connection"), "close") << what << rest;
    }
  }
  // A small one does not cost the connection.
  RawClient client = Connect();
  for (const char* request : {"POST /nowhere", "POST /hello", "GET /hello"}) {
    client.Send(std::string(request) + " HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nsmall");
    EXPECT_EQ(client.ReadResponse().headers.at("connection"), "keep-alive") << request;
  }
}

// Neither counts as a body, and a sender may take two minutes for either.
TEST_F(HttpServerTest, RefusesEndlessChunkExtensionsAndTrailers) {
  Start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string megabyte(1 << 20, 'a');
  for (const std::string begin : {"1;", "1\r\nb\r\n1;", "0;", "0\r\nA: "}) {
    const RawResponse response = Once(head + begin + megabyte);
    EXPECT_EQ(response.status, 431) << begin;
    EXPECT_EQ(response.headers.at("connection"), "close");
  }
  const RawResponse usual = Once(head + "1;name=value\r\nb\r\n0;last\r\nA: trailer\r\n\r\n");
  EXPECT_EQ(usual.status, 200);
  EXPECT_EQ(usual.body, "b");
}

// So that the connection is watched for a while beside the answer.
class MadeSlowly final : public Reply {
 public:
  ReplyPart Next() override {
    ReplyPart part;
    part.make = [] {
      std::this_thread::sleep_for(30ms);
      return ReplyPart{ResponseHead{}, "made", true};
    };
    return part;
  }
};

// What an answered request leaves free of what is kept is less than what one read takes.
TEST_F(HttpServerTest, ReadsASenderFarAheadNoFurtherWhileItAnswers) {
  router_.Add({"GET", "/made", [](Request) { return std::make_unique<MadeSlowly>(); }});
  Start();
  std::string requests;
  for (int i = 0; i < 20; ++i) requests += GetRequest("/made");
  for (int i = 0; i < 80; ++i) {
    requests += GetRequest("/made", "X-Long: " + std::string(10'000, 'x') + "\r\n");
  }
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(client.ReadResponse().body, "made");
  client.Close();
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

// The limit is for progress: the whole answer takes many times as long. The client is ended as well
// when others have its processor for that time: one good try shows it.
TEST_F(HttpServerTest, AClientThatReadsSlowlyButSteadilyGetsAllOfALongAnswer) {
  constexpr size_t kBytes = 6 << 20;
  Start({.write_timeout = 500ms});
  size_t most = 0;
  for (int i = 0; i < 4 && most < kBytes; ++i) {
    RawClient slow(server_->port(), /*receive_buffer_bytes=*/16 << 10);
    ASSERT_TRUE(slow.Send(PostRequest("/echo", std::string(kBytes, 'b'))));
    const auto begin = std::chrono::steady_clock::now();
    while (slow.ReadPast(slow.pending().size()) && slow.pending().size() < kBytes) {
      std::this_thread::sleep_for(5ms);
    }
    const auto taken = std::chrono::steady_clock::now() - begin;
    most = std::max(most, slow.ReadResponse().body.size());
    if (most == kBytes) {
      EXPECT_GT(taken, 1500ms) << "too quick to show anything";
    }
  }
  EXPECT_EQ(most, kBytes);
}

// Each 64 KiB is taken in a fraction of the write timeout, all of it at some 0.8 MB/s.
class SlowReadersTest : public HttpServerTest {
 protected:
  static constexpr size_t kBytes = 3 << 20;

  void Start() {
    HttpServerTest::Start({.write_timeout = 2s,
                           .answer_bytes_per_s = 16 << 20,
                           .on_exchange = [this](const Exchange& exchange) {
                             std::lock_guard lock(mutex_);
                             complete_ = exchange.complete;
                           }});
  }
  RawResponse ReadSlowly(const std::string& request) {
    RawClient slow(server_->port(), /*receive_buffer_bytes=*/16 << 10);
    slow.Send(request);
    while (slow.ReadPast(slow.pending().size()) && slow.pending().size() < kBytes) {
      std::this_thread::sleep_for(20ms);
    }
    return slow.ReadResponse();
  }
  bool Complete() {
    std::lock_guard lock(mutex_);
    return complete_;
  }

 private:
  std::mutex mutex_;
  bool complete_ = false;
};

// More than what the write timeout would let pass. The client reads less while others have its
// processor: one good try shows it.
TEST_F(SlowReadersTest, AnAnswerThatIsReadTooSlowlyEndsItsConnection) {
  Start();
  size_t most = 0;
  for (int i = 0; i < 4 && most <= size_t{1} << 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const RawResponse cut = ReadSlowly(PostRequest("/echo", std::string(kBytes, 'b')));
    EXPECT_EQ(cut.status, 200);
    EXPECT_FALSE(cut.complete);
    EXPECT_GT(std::chrono::steady_clock::now() - begin, 2s);
    most = std::max(most, cut.body.size());
    EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
    EXPECT_FALSE(Complete());
  }
  EXPECT_GT(most, size_t{1} << 20) << "the write timeout ended it";
}

// What is ready of it is little at any time.
TEST_F(SlowReadersTest, AStreamMayBeReadAsSlowlyAsItsClientLikes) {
  Start();
  const RawResponse all = ReadSlowly(GetRequest("/stream?" + std::to_string(kBytes / 1000 + 1)));
  EXPECT_TRUE(all.complete);
  EXPECT_GE(all.body.size(), kBytes);
  EXPECT_TRUE(Eventually([&] { return Complete(); }));
}

TEST_F(LargeBodies, IdleConnectionsKeepNoMemoryOfWhatTheyWereSent) {
  constexpr int kClients = 40, kAhead = 20;
  Start({});
  std::string requests = GetRequest("/held");
  for (int i = 0; i < kAhead; ++i) {
    requests += GetRequest("/hello", "X-Pad: " + std::string(4'000, 'p') + "\r\n");
  }
  std::vector<RawClient> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(Connect());
  const size_t before = AllocatedBytes();
  for (RawClient& client : clients) client.Send(requests);
  ASSERT_TRUE(Eventually([&] {
    return observed_.alive == kClients &&
           (before == 0 || AllocatedBytes() > before + kClients * requests.size() / 2);
  })) << AllocatedBytes() - before;
  observed_.go = true;
  for (RawClient& client : clients) {
    for (int i = 0; i <= kAhead; ++i) ASSERT_EQ(client.ReadResponse().status, 200);
  }
  EXPECT_TRUE(Eventually([&] { return AllocatedBytes() <= before + kClients * (32 << 10); }))
      << (AllocatedBytes() - before) / kClients << " bytes each";
}

}  // namespace
}  // namespace refrain::server::http
