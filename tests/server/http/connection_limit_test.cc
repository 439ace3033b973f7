// Who is turned away, and who gives up its place, where there are as many connections as may be.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/server/http/server_fixture.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using namespace std::chrono_literals;

TEST_F(HttpServerTest, TurnsAwayConnectionsBeyondTheLimit) {
  const auto counts = std::make_shared<ConnectionCounts>();
  Start({.max_connections = 3, .connection_counts = counts, .place_kept = 1h});
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    clients.back().Send(GetRequest("/hello"));
    EXPECT_EQ(clients.back().ReadResponse().status, 200);
  }
  RawClient extra = Connect();
  EXPECT_EQ(extra.ReadResponse().status, 503);
  EXPECT_EQ(counts->accepted, 3);
  EXPECT_EQ(counts->refused, 1);
  clients.clear();
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
  EXPECT_EQ(Once(GetRequest("/hello")).status, 200);
}

// Probes come on connections of their own: clients that do nothing must not keep them out.
TEST_F(HttpServerTest, WhoHasIdledLongestGivesUpItsPlace) {
  // Longer than a busy machine takes to see that a connection idles, so that the order is ours.
  constexpr auto kApart = 300ms;
  const auto counts = std::make_shared<ConnectionCounts>();
  Start({.max_connections = 3, .connection_counts = counts, .place_kept = 20ms});
  RawClient busy = Connect();
  busy.Send("GET /hello HTTP/1.1\r\n");
  RawClient silent = Connect();  // has not sent anything yet
  std::this_thread::sleep_for(kApart);
  RawClient kept = Connect();
  const auto ask = [](RawClient* client) {
    client->Send(GetRequest("/hello"));
    return client->ReadResponse().status;
  };
  EXPECT_EQ(ask(&kept), 200);
  std::this_thread::sleep_for(kApart);
  RawClient first = Connect();
  EXPECT_EQ(ask(&first), 200);
  EXPECT_TRUE(silent.ReadEnd());
  std::this_thread::sleep_for(kApart);
  EXPECT_EQ(ask(&kept), 200);  // so that `first` has idled longer
  std::this_thread::sleep_for(kApart);
  RawClient second = Connect();
  EXPECT_EQ(ask(&second), 200);
  EXPECT_TRUE(first.ReadEnd());
  EXPECT_EQ(ask(&kept), 200);
  busy.Send("Host: t\r\n\r\n");
  EXPECT_EQ(busy.ReadResponse().status, 200);
  EXPECT_EQ(counts->accepted, 5);
  EXPECT_EQ(counts->refused, 0);
  EXPECT_EQ(counts->evicted, 2);
}

// As many as come at once.
TEST_F(HttpServerTest, MakesRoomForManyAtOnce) {
  Start({.max_connections = 50, .place_kept = 20ms});
  std::vector<RawClient> idle;
  for (int i = 0; i < 50; ++i) idle.push_back(Connect());
  ASSERT_TRUE(Eventually([&] { return server_->connections() == 50; }));
  std::this_thread::sleep_for(30ms);
  std::vector<RawClient> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(Connect());
    clients.back().Send(GetRequest("/hello"));
  }
  for (RawClient& client : clients) EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_LE(server_->connections(), 50);
}

TEST_F(HttpServerTest, GoesOnAcceptingWhenThereIsNoMemoryForOne) {
  std::atomic<int> made = 0;
  Start({.max_connections = 1,
         .place_kept = 1h,
         .error_body = [&](int, std::string_view) -> std::string {
           if (++made == 1) throw std::bad_alloc();
           return "full";
         }});
  RawClient client = Connect();
  client.Send(GetRequest("/hello"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_TRUE(Connect().ReadEnd());
  EXPECT_EQ(Connect().ReadResponse().status, 503);
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace refrain::server::http
