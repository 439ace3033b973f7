// The end of a gRPC server with answers still on their way.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "proto/inference.grpc.pb.h"
#include "server/access/gate.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(GrpcDrain, WaitsForAReaderThatIsSlow) {
  constexpr int kTokens = 20'000;  // with log-probabilities: more than flow control lets go
  const auto gate = access::MakeOpenGate();
  Log log(LogFormat::kText, LogLevel::kError);
  testing::FakeEngine engine({.max_context_tokens = 1 << 17});
  auto server = Server::Start({.host = "127.0.0.1"}, gate.get(), &log);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->SetEngine(&engine);
  const auto stub = v1::Inference::NewStub(::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string((*server)->port()), ::grpc::InsecureChannelCredentials()));
  v1::GenerateRequest request;
  request.mutable_text()->set_text("abc");
  request.mutable_params()->mutable_stop()->set_max_tokens(kTokens);
  request.mutable_params()->mutable_stop()->set_ignore_eos(true);
  request.mutable_params()->mutable_logprobs()->set_top(20);
  ::grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  int tokens = message.choices(0).token_ids_size();

  (*server)->BeginDrain();
  ASSERT_TRUE(engine.Drain(Clock::now() + 10s));
  EXPECT_FALSE((*server)->WaitUntilAnswered(Clock::now() + 50ms));  // nobody reads
  bool finished = false;
  std::thread waiter([&] { finished = (*server)->WaitUntilAnswered(Clock::now() + 20s); });
  while (reader->Read(&message)) {
    for (const v1::ChoiceDelta& delta : message.choices()) tokens += delta.token_ids_size();
  }
  waiter.join();
  EXPECT_TRUE(finished);
  EXPECT_EQ(tokens, kTokens);
  EXPECT_TRUE(reader->Finish().ok());
  (*server)->Stop(0ms);
}

}  // namespace
}  // namespace refrain::server::rpc
