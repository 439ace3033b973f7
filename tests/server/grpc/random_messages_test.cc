// Random messages over real sockets, most of them wrong in some way: no crash, no status that
// blames the server, no call that is left running or leaves memory behind. 10^4 of them, or
// REFRAIN_RANDOM_STEPS. (What the readers make of bytes alone is tests/fuzz:grpc_request_fuzz's.)

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/server/grpc/random_calls.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/counting_gate.h"
#include "tests/support/fake_engine.h"
#include "tests/support/letter_engine.h"
#include "tests/support/random_steps.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::CallTally;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;
using ::refrain::testing::SendRandomCalls;

// What half of the messages may leave behind in all: 210 bytes each of 5,000, 2 of 500,000. gRPC's
// own memory varies by 0.4 MB. (The test's environment turns off malloc's caches of threads, which
// count as allocated.)
constexpr size_t kLeastLeakBytes = 1 << 20;

TEST(RandomMessages, NoneCrashesSticksLeaksOrBlamesTheServer) {
  constexpr int kThreads = 4;
  Log log(LogFormat::kText, LogLevel::kError);
  testing::CountingGate gate;
  testing::FakeEngine engine({.max_context_tokens = 512});
  ServerOptions options;
  options.host = "127.0.0.1";
  const auto server = *Server::Start(options, &gate, &log);
  server->SetEngine(&engine);
  const auto channel = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server->port()),
                                             ::grpc::InsecureChannelCredentials());
  CallTally tally;
  ::testing::internal::CaptureStderr();
  const auto send_half = [&](uint32_t seed) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, seed = RandomSeed(seed + i)] {
        SendRandomCalls(channel, seed, RandomSteps() / 2 / kThreads, &tally);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(engine.WaitForRunning(0));
    EXPECT_TRUE(server->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
    EXPECT_TRUE(engine.DropIdleCache().ok());
  };
  // By the second half everything is as large as it gets.
  send_half(2000);
  const size_t before = AllocatedBytes();
  send_half(2000 + kThreads);
  EXPECT_LE(AllocatedBytes(), before + kLeastLeakBytes);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "what clients send is no news";
  // The mixture is what it is meant to be.
  EXPECT_GT(tally.good, RandomSteps() / 10);
  EXPECT_GT(tally.refused, RandomSteps() / 10);
  EXPECT_GT(tally.unreadable, RandomSteps() / 100);
  EXPECT_GT(tally.abandoned, RandomSteps() / 100);
  const auto inference = v1::Inference::NewStub(channel);
  ::grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("still here");
  v1::TokenizeResponse response;
  EXPECT_TRUE(inference->Tokenize(&context, request, &response).ok());
  EXPECT_EQ(response.token_ids_size(), 10);
  server->Stop(0ms);
}

// At the real engine with few slots and little cache, many calls given up before or inside their
// answers: no slot, place in the queue or chunk stays taken.
TEST(RandomMessages, LeaveNothingTakenInARealEngine) {
  constexpr int kClients = 2 * testing::LetterEngine::kSlots;
  constexpr int kPercentAbandoned = 30;
  Log log(LogFormat::kText, LogLevel::kError);
  testing::CountingGate gate;
  testing::LetterEngine engine;
  ServerOptions options;
  options.host = "127.0.0.1";
  const auto server = *Server::Start(options, &gate, &log);
  server->SetEngine(engine.get());
  const auto channel = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server->port()),
                                             ::grpc::InsecureChannelCredentials());
  CallTally tally;
  std::vector<std::thread> clients;
  for (uint32_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, seed = RandomSeed(4000 + i)] {
      SendRandomCalls(channel, seed, RandomSteps() / kClients, &tally, kPercentAbandoned);
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_TRUE(server->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
  EXPECT_EQ(engine.Leftovers(), "");
  EXPECT_GT(tally.good, RandomSteps() / 20);
  EXPECT_GT(tally.abandoned, RandomSteps() / 5);
  EXPECT_GT(engine.get()->stats().kv_evicted_chunks_total, RandomSteps() / 100);
  server->Stop(0ms);
}

}  // namespace
}  // namespace refrain::server::rpc
