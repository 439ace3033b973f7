// Random requests, most of them wrong in some way, over real sockets: no crash, no answer that
// blames the server, no request that is left running. 10^4 of them, or REFRAIN_RANDOM_STEPS.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/random_clients.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/eventually.h"
#include "tests/support/random_steps.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::Eventually;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;
using ::refrain::testing::RawClient;
using ::refrain::testing::RequestTally;
using ::refrain::testing::SendRandomRequests;
using ::refrain::testing::ServedFake;

// What half of the requests may leave behind in all: 13 bytes each of 5,000. Without a leak it is
// less than 10,000 (the test's environment turns off malloc's caches of threads, which count as
// allocated).
constexpr size_t kLeastLeakBytes = 64 << 10;

TEST(RandomRequests, NoneCrashesSticksLeaksOrBlamesTheServer) {
  constexpr int kThreads = 4;
  http::ServerOptions http_options;
  http_options.header_timeout = http_options.body_timeout = std::chrono::milliseconds(1000);
  ServedFake served({.max_context_tokens = 512,
                     .chat_template = "{% if tools %}{{ tools }}<tool_call>{% endif %}"},
                    std::move(http_options), {.version = "9", .max_choices = 4, .max_beams = 4});
  RequestTally tally;
  const auto send_half = [&](uint32_t seed) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, seed = RandomSeed(seed + i)] {
        SendRandomRequests(served.port(), seed, RandomSteps() / 2 / kThreads, &tally);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(served.engine().WaitForRunning(0));
    EXPECT_TRUE(Eventually([&] { return served.server().connections() == 0; }));
    EXPECT_TRUE(served.engine().DropIdleCache().ok());
  };
  // By the second half everything is as large as it gets.
  send_half(1000);
  const size_t before = AllocatedBytes();
  send_half(1000 + kThreads);
  EXPECT_LE(AllocatedBytes(), before + kLeastLeakBytes);
  // The mixture is what it is meant to be.
  EXPECT_GT(tally.good, RandomSteps() / 10);
  EXPECT_GT(tally.refused, RandomSteps() / 5);
  EXPECT_GT(tally.dropped, RandomSteps() / 50);
  RawClient client(served.port());
  client.Send(PostRequest("/v1/completions", R"({"prompt":"still here"})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace refrain::server::openai
