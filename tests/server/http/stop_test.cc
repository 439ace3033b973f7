// How the HTTP server ends: what becomes of answers under way, of idle connections and of requests
// that have come and have not been read.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/http/server.h"
#include "tests/server/http/server_fixture.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

class HttpStopTest : public HttpServerTest {
 protected:
  static constexpr size_t kBodyBytes = 1000, kRestBytes = 500;
  static std::string Body(size_t bytes) { return std::string(bytes, 'x'); }

  // A request whose body the server has begun to read; its last kRestBytes do not come.
  RawClient BeginBody() {
    const std::string request =
        testing::PostRequest("/echo", Body(kBodyBytes), "Expect: 100-continue\r\n");
    RawClient client = Connect();
    client.Send(request.substr(0, request.size() - kBodyBytes));
    EXPECT_EQ(client.ReadResponse(/*head_only=*/true).status, 100);
    client.Send(Body(kBodyBytes - kRestBytes));
    return client;
  }
  // A request whose header begins with "GET /hel": that was read with the request before it.
  RawClient BeginHeader() {
    RawClient client = Connect();
    client.Send(GetRequest("/hello") + "GET /hel");
    EXPECT_EQ(client.ReadResponse().status, 200);
    return client;
  }

  // Of two clients that have sent a part of a request: one has stopped there, the other one goes
  // on, slowly.
  void ExpectPartsRefused(const std::function<RawClient()>& begin_part,
                          std::chrono::milliseconds grace) {
    Start({.last_requests = 50ms});
    RawClient silent = begin_part(), slow = begin_part();
    std::atomic<bool> answered{false};
    std::thread sender([&] {
      while (!answered && slow.Send("x")) std::this_thread::sleep_for(20ms);
    });
    const auto begin = std::chrono::steady_clock::now();
    std::thread stopper([&] { server_->Stop(grace); });
    for (RawClient* client : {&silent, &slow}) {
      RawResponse response = client->ReadResponse();
      EXPECT_EQ(response.status, 503);
      EXPECT_EQ(response.headers["retry-after"], "1");
      EXPECT_EQ(response.headers["connection"], "close");
      EXPECT_NE(response.body.find("shutting down"), std::string::npos) << response.body;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    answered = true;
    sender.join();
    silent.Close();
    slow.Close();
    stopper.join();
  }

  // Whatever the grace is, of which an answer under way may need all.
  void ExpectStopsSoon() {
    const auto begin = std::chrono::steady_clock::now();
    server_->Stop(60s);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  }

  // What the wait for answers says that ends at `limit`, and that it took all of that time.
  bool WaitsUntil(std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    const bool answered = server_->WaitUntilAnswered(deadline);
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    return answered;
  }
  // Long before the wait would end.
  void ExpectAnsweredSoon() {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(server_->WaitUntilAnswered(begin + 60s));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  }

  // Of what holds its I/O thread until it is `over`.
  struct Block {
    std::atomic<bool> waits{false};  // for its wakeup
    std::atomic<bool> begun{false};
    std::atomic<bool> over{false};
    std::function<void()> wakeup;

    ReplyPart Run() {
      begun = true;
      while (!over) std::this_thread::sleep_for(1ms);
      return {ResponseHead{}, "let go", true};
    }
  };

  class BlocksWhenWoken final : public Reply {
   public:
    explicit BlocksWhenWoken(Block* block) : block_(block) {}
    void Start(std::function<void()> wakeup) override { block_->wakeup = std::move(wakeup); }
    ReplyPart Next() override { return block_->waits.exchange(true) ? block_->Run() : ReplyPart(); }

   private:
    Block* block_;
  };

  void SetUp() override {
    router_.Add(
        {"GET", "/blocks-io", [this](Request) { return MakeReply({}, at_once_.Run().body); }});
    router_.Add({"GET", "/blocks-io-when-woken",
                 [this](Request) { return std::make_unique<BlocksWhenWoken>(&when_woken_); }});
  }

  Block at_once_;
  Block when_woken_;
};

TEST_F(HttpStopTest, StopFinishesAnswersAndClosesIdleConnections) {
  Start();
  RawClient idle = Connect();
  idle.Send(GetRequest("/hello"));
  EXPECT_EQ(idle.ReadResponse().status, 200);
  RawClient busy = Connect();
  busy.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  std::thread stopper([&] { server_->Stop(5s); });
  EXPECT_TRUE(idle.ReadEnd());
  observed_.go = true;
  const RawResponse response = busy.ReadResponse();
  EXPECT_EQ(response.body, "held");
  busy.Close();
  stopper.join();
  EXPECT_EQ(observed_.alive, 0);
}

// Of connections that are kept, and of some that nobody has accepted yet: a reset would leave their
// clients without knowing whether they were heard.
TEST_F(HttpStopTest, StopAnswersWhatHasCome) {
  Start({.io_threads = 1});
  RawClient kept = Connect();
  kept.Send(GetRequest("/hello"));
  EXPECT_EQ(kept.ReadResponse().status, 200);
  RawClient blocker = Connect();
  blocker.Send(GetRequest("/blocks-io"));
  ASSERT_TRUE(Eventually([&] { return at_once_.begun.load(); }));
  std::thread stopper([&] { server_->Stop(5s); });
  std::this_thread::sleep_for(50ms);  // what Stop asks of the I/O thread is first in its queue
  RawClient waiting = Connect();
  for (RawClient* client : {&kept, &waiting}) client->Send(GetRequest("/hello"));
  at_once_.over = true;
  EXPECT_EQ(blocker.ReadResponse().body, "let go");
  EXPECT_EQ(kept.ReadResponse().body, "hello");
  EXPECT_EQ(waiting.ReadResponse().body, "hello");
  for (RawClient* client : {&blocker, &kept, &waiting}) client->Close();
  stopper.join();
}

// Of clients that wait to be accepted one has just been when the server stops, and is not known of.
TEST_F(HttpStopTest, StopAnswersWhoIsBeingAccepted) {
  Block while_accepting;
  router_.Add(
      {"GET", "/blocks-too", [&](Request) { return MakeReply({}, while_accepting.Run().body); }});
  Start({.io_threads = 1});
  RawClient blocker = Connect();
  blocker.Send(GetRequest("/blocks-io"));
  ASSERT_TRUE(Eventually([&] { return at_once_.begun.load(); }));
  std::vector<RawClient> waiting;
  for (int i = 0; i < 40; ++i) {
    waiting.push_back(Connect());
    waiting.back().Send(GetRequest(i == 0 ? "/blocks-too" : "/hello"));
  }
  at_once_.over = true;
  ASSERT_TRUE(Eventually([&] { return while_accepting.begun.load(); }));
  std::thread stopper([&] { server_->Stop(5s); });
  std::this_thread::sleep_for(50ms);  // what Stop asks of the I/O thread is in its queue
  while_accepting.over = true;
  for (RawClient& client : waiting) {
    EXPECT_EQ(client.ReadResponse().status, 200);
    client.Close();
  }
  blocker.Close();
  stopper.join();
}

// Stop has asked the connections of an I/O thread to end, and something else has its turn first.
TEST_F(HttpStopTest, StopAnswersWhatComesBeforeAConnectionIsClosed) {
  Start({.io_threads = 2, .last_requests = 0ms});
  // Connections take turns: the I/O thread of `idle`, which tells how far Stop is, goes on.
  RawClient idle = Connect(), kept = Connect();
  RawClient other = Connect(), blocker = Connect();
  RawClient another = Connect(), woken = Connect();
  kept.Send(GetRequest("/hello"));
  EXPECT_EQ(kept.ReadResponse().status, 200);
  woken.Send(GetRequest("/blocks-io-when-woken"));
  ASSERT_TRUE(Eventually([&] { return when_woken_.waits.load(); }));
  blocker.Send(GetRequest("/blocks-io"));
  ASSERT_TRUE(Eventually([&] { return at_once_.begun.load(); }));
  std::thread stopper([&] { server_->Stop(5s); });
  EXPECT_TRUE(idle.ReadEnd());
  std::this_thread::sleep_for(50ms);  // what Stop asks of the other I/O thread is in its queue
  when_woken_.wakeup();
  at_once_.over = true;
  EXPECT_TRUE(Eventually([&] { return when_woken_.begun.load(); }));
  kept.Send(GetRequest("/hello"));
  when_woken_.over = true;
  EXPECT_EQ(kept.ReadResponse().body, "hello");
  EXPECT_EQ(blocker.ReadResponse().body, "let go");
  EXPECT_EQ(woken.ReadResponse().body, "let go");
  for (RawClient* client : {&kept, &blocker, &woken}) client->Close();
  stopper.join();
}

// A client connects, and sends a moment later.
TEST_F(HttpStopTest, StopAnswersWhoHasJustConnected) {
  Start({.last_requests = 60s});
  RawClient kept = Connect();
  kept.Send(GetRequest("/hello"));
  EXPECT_EQ(kept.ReadResponse().status, 200);
  RawClient fresh = Connect();
  ASSERT_TRUE(Eventually([&] { return server_->connections() == 2; }));
  std::thread stopper([&] { server_->Stop(60s); });
  // Accepts nobody any more: it has begun.
  ASSERT_TRUE(Eventually([&] { return !Connect().connected(); }));
  for (RawClient* client : {&fresh, &kept}) {
    client->Send(GetRequest("/hello"));
    const RawResponse response = client->ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.at("connection"), "close");
    client->Close();
  }
  stopper.join();
}

TEST_F(HttpStopTest, StopWithoutGraceDropsReplies) {
  Start();
  RawClient busy = Connect();
  busy.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  server_->Stop(0ms);
  EXPECT_EQ(observed_.alive, 0);
  EXPECT_TRUE(busy.ReadEnd());
}

TEST_F(HttpStopTest, DrainingStillAnswersNewConnectionsButKeepsNone) {
  Start();
  server_->BeginDrain();
  RawClient client = Connect();
  client.Send(GetRequest("/hello"));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("connection"), "close");
}

TEST_F(HttpStopTest, AnUploadThatBeginsWhileDrainingHoldsNothingUp) {
  Start();
  server_->BeginDrain();
  RawClient client = BeginBody();
  ExpectAnsweredSoon();
  client.Send(Body(kRestBytes));
  EXPECT_EQ(client.ReadResponse().body, Body(kBodyBytes));
}

// What it asks would be refused, and Stop refuses it as well.
TEST_F(HttpStopTest, AHeaderThatIsStillComingHoldsNothingUp) {
  Start();
  RawClient client = BeginHeader();
  server_->BeginDrain();
  ExpectAnsweredSoon();
  client.Send("lo HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().body, "hello");
}

// Its client sent it to a server that was ready.
TEST_F(HttpStopTest, AnUploadUnderWayWhenDrainingBeginsIsWaitedFor) {
  Start();
  RawClient client = BeginBody();
  server_->BeginDrain();
  EXPECT_TRUE(WaitsUntil(100ms));
  std::thread waiter([&] { ExpectAnsweredSoon(); });
  client.Send(Body(kRestBytes));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.body, Body(kBodyBytes));
  EXPECT_EQ(response.headers.at("connection"), "close");
  waiter.join();
}

TEST_F(HttpStopTest, AnUploadThatDoesNotComeToItsEndMakesNoDrainAFailure) {
  Start();
  RawClient client = BeginBody();
  server_->BeginDrain();
  EXPECT_TRUE(WaitsUntil(100ms));
}

TEST_F(HttpStopTest, StopRefusesBodiesThatHaveNotCome) {
  ExpectPartsRefused([this] { return BeginBody(); }, 60s);
}
TEST_F(HttpStopTest, StopWithoutGraceRefusesBodiesThatHaveNotCome) {
  ExpectPartsRefused([this] { return BeginBody(); }, 0s);
}

TEST_F(HttpStopTest, StopRefusesHeadersThatHaveNotCome) {
  ExpectPartsRefused([this] { return BeginHeader(); }, 60s);
}
TEST_F(HttpStopTest, StopWithoutGraceRefusesHeadersThatHaveNotCome) {
  ExpectPartsRefused([this] { return BeginHeader(); }, 0s);
}

// What comes at the moment of Stop's question does not make a header whole.
TEST_F(HttpStopTest, StopRefusesAHeaderOfWhichMoreHasJustCome) {
  Start({.io_threads = 2, .last_requests = 0ms});
  // Connections take turns: the I/O thread of `idle`, which tells how far Stop is, goes on.
  RawClient idle = Connect(), header = BeginHeader();
  RawClient other = Connect(), blocker = Connect();
  blocker.Send(GetRequest("/blocks-io"));
  ASSERT_TRUE(Eventually([&] { return at_once_.begun.load(); }));
  std::thread stopper([&] { server_->Stop(60s); });
  EXPECT_TRUE(idle.ReadEnd());
  std::this_thread::sleep_for(50ms);  // what Stop asks of the other I/O thread is in its queue
  header.Send("x");
  at_once_.over = true;
  EXPECT_EQ(blocker.ReadResponse().body, "let go");
  EXPECT_EQ(header.ReadResponse().status, 503);
  for (RawClient* client : {&header, &blocker}) client->Close();
  stopper.join();
}

TEST_F(HttpStopTest, WhoIsRefusedAndDoesNotCloseHoldsUpNoEnd) {
  Start({.last_requests = 50ms});
  RawClient header = BeginHeader(), body = BeginBody();
  ExpectStopsSoon();
  for (RawClient* client : {&header, &body}) EXPECT_EQ(client->ReadResponse().status, 503);
}

// One is silent, the other one still sends what nobody wants.
TEST_F(HttpStopTest, WhoWasRefusedBeforeAndDoesNotCloseHoldsUpNoEnd) {
  Start({.last_requests = 50ms});
  RawClient silent = Connect(), sender = Connect();
  for (RawClient* client : {&silent, &sender}) {
    client->Send("POST /unknown HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
    EXPECT_EQ(client->ReadResponse().status, 404);
  }
  std::atomic<bool> over{false};
  std::thread sending([&] {
    while (!over && sender.Send("x")) std::this_thread::sleep_for(1ms);
  });
  ExpectStopsSoon();
  over = true;
  sending.join();
}

TEST_F(HttpStopTest, BodiesThatComeWhileItStopsAreRead) {
  Start({.last_requests = 2s});
  RawClient client = BeginBody();
  std::thread stopper([&] { server_->Stop(60s); });
  ASSERT_TRUE(Eventually([&] { return !Connect().connected(); }));
  client.Send(Body(kRestBytes));
  EXPECT_EQ(client.ReadResponse().body, Body(kBodyBytes));
  client.Close();
  stopper.join();
}

TEST_F(HttpStopTest, AnAnswerUnderWayWhenDrainingBeginsEndsItsConnection) {
  Start();
  RawClient client = Connect();
  client.Send(GetRequest("/held"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  server_->BeginDrain();
  observed_.go = true;
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.body, "held");
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(HttpStopTest, AnAnswerThatBeginsWhileDrainingEndsItsConnection) {
  Start();
  RawClient client = Connect();
  client.Send(GetRequest("/held?two_parts"));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  server_->BeginDrain();
  observed_.go = true;
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.body, "begun, held");
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadEnd());
}

// A stream that began before the drain, and whose client was told that the connection is kept.
class BegunBeforeDrainTest : public HttpStopTest {
 protected:
  // Sends `ahead` before the stream's end, which is read.
  void Drain(RawClient* client, const std::string& ahead = "") {
    client->Send(GetRequest("/held?begun"));
    ASSERT_TRUE(client->ReadUntil("begun"));
    client->Send(ahead);
    server_->BeginDrain();
    observed_.go = true;
    const RawResponse begun = client->ReadResponse();
    EXPECT_EQ(begun.body, "begun, held");
    EXPECT_EQ(begun.headers.at("connection"), "keep-alive");
  }
  static void ExpectLast(RawClient* client) {
    RawResponse last = client->ReadResponse();
    EXPECT_EQ(last.body, "hello");
    EXPECT_EQ(last.headers["connection"], "close");
    EXPECT_TRUE(client->ReadEnd());
  }
};

// It may be on its way before the client can know of any end.
TEST_F(BegunBeforeDrainTest, OneMoreRequestIsAnswered) {
  Start({.last_requests = 60s});
  RawClient client = Connect();
  Drain(&client);
  EXPECT_FALSE(client.ReadEnd(100ms));
  client.Send(GetRequest("/hello"));
  ExpectLast(&client);
}

TEST_F(BegunBeforeDrainTest, OfRequestsSentAheadOneIsAnswered) {
  Start({.last_requests = 60s});
  RawClient client = Connect();
  Drain(&client, GetRequest("/hello") + GetRequest("/hello"));
  ExpectLast(&client);
}

TEST_F(BegunBeforeDrainTest, WhoSendsNothingIsSentElsewhereSoon) {
  Start({.last_requests = 50ms});
  RawClient client = Connect();
  Drain(&client);
  EXPECT_TRUE(client.ReadEnd());
}

}  // namespace
}  // namespace refrain::server::http
