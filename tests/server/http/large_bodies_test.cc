// Bodies that are large, many, or slow to leave.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/http/server_fixture.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using namespace std::chrono_literals;

// What is sent of a body counts, whether or not the rest ever comes.
TEST_F(HttpServerTest, RefusesMoreBytesOfBodiesThanItMayHold) {
  Start({.bodies_bytes = 200 << 10});
  const std::string large = PostRequest("/echo", std::string(100 << 10, 'b'));
  std::vector<RawClient> halves;
  for (int i = 0; i < 3; ++i) {
    halves.push_back(Connect());
    halves.back().Send(std::string_view(large).substr(0, 60 << 10));
  }
  std::this_thread::sleep_for(200ms);  // until they have been read
  const auto refused = [&] {
    const RawResponse response = Once(large);
    EXPECT_TRUE(response.status == 503 || response.status == 200) << response.status;
    if (response.status == 503) {
      EXPECT_EQ(response.headers.at("retry-after"), "1");
      EXPECT_NE(response.body.find("204800 (limits.bodies_bytes)"), std::string::npos);
    }
    return response.status == 503;
  };
  EXPECT_TRUE(refused());
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

TEST_F(HttpServerTest, ABodyThatOnlyPromisesToBeLargeTakesNothing) {
  Start({.bodies_bytes = 200 << 10});
  std::vector<RawClient> promises;
  for (int i = 0; i < 5; ++i) {
    promises.push_back(Connect());
    promises.back().Send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\nabc");
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(Once(PostRequest("/echo", std::string(150 << 10, 'b'))).status, 200);
}

// The limit is for progress: the whole answer takes many times as long.
TEST_F(HttpServerTest, AClientThatReadsSlowlyButSteadilyGetsAllOfALongAnswer) {
  constexpr size_t kBytes = 6 << 20;
  Start({.write_timeout = 500ms});
  RawClient slow(server_->port(), /*receive_buffer_bytes=*/16 << 10);
  ASSERT_TRUE(slow.Send(PostRequest("/echo", std::string(kBytes, 'b'))));
  const auto begin = std::chrono::steady_clock::now();
  while (slow.ReadPast(slow.pending().size()) && slow.pending().size() < kBytes) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 1500ms) << "too quick to show anything";
  EXPECT_EQ(slow.ReadResponse().body.size(), kBytes);
}

}  // namespace
}  // namespace refrain::server::http
