// The requests of random_requests_test at the real engine with few slots and little cache, over
// real sockets, many of whose clients go before or inside an answer: no slot, place in the queue or
// chunk stays taken, and nothing is answered that blames the server.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "server/http/server.h"
#include "server/log.h"
#include "server/openai/service.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/openai/random_clients.h"
#include "tests/support/eventually.h"
#include "tests/support/letter_engine.h"
#include "tests/support/random_steps.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::Leaving;
using ::refrain::testing::LetterEngine;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;
using ::refrain::testing::RawClient;
using ::refrain::testing::RequestTally;
using ::refrain::testing::SendRandomRequests;
using namespace std::chrono_literals;

TEST(StuckSlots, AreNoneBehindRandomRequestsWhoseClientsGo) {
  constexpr int kClients = 2 * LetterEngine::kSlots;
  constexpr int kPercentLeft = 30;
  Log log(LogFormat::kText, LogLevel::kError);
  LetterEngine engine;
  Service service(
      {.version = "9", .max_choices = LetterEngine::kSlots, .max_beams = LetterEngine::kSlots},
      &log);
  http::Router router;
  service.SetEngine(engine.get());
  service.AddRoutes(&router);
  http::ServerOptions options;
  options.header_timeout = options.body_timeout = 1s;
  options.error_body = Service::HttpErrorBody;
  const auto server = *http::Server::Start(std::move(options), &router);
  RequestTally tally;
  std::vector<std::thread> clients;
  for (uint32_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, seed = RandomSeed(3000 + i)] {
      SendRandomRequests(server->port(), seed, RandomSteps() / kClients, &tally,
                         Leaving::kAlsoInside, kPercentLeft);
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return server->connections() == 0; }));
  EXPECT_EQ(engine.Leftovers(), "");
  // The mixture is what it is meant to be, and there was want of room.
  EXPECT_GT(tally.good, RandomSteps() / 10);
  EXPECT_GT(tally.dropped, RandomSteps() / 5);
  const engine::EngineStats stats = engine.get()->stats();
  EXPECT_GT(stats.kv_evicted_chunks_total, RandomSteps() / 100);
  EXPECT_GT(stats.preemptions_total, RandomSteps() / 1000);
  RawClient client(server->port());
  client.Send(PostRequest("/v1/completions", R"({"prompt":"still here"})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  server->Stop(0ms);
}

}  // namespace
}  // namespace refrain::server::openai
