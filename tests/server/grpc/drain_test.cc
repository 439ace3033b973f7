// The end of a gRPC server with answers still on their way.

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "proto/error_details.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tests/server/grpc/health_check.h"
#include "tests/server/grpc/server_fixture.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kTokens = 20'000;  // with log-probabilities: more than flow control lets go

// Standard error is a full pipe, which the log waits for: once, for a second.
class FullStandardError {
 public:
  FullStandardError() : before_(::dup(STDERR_FILENO)) {
    if (before_ < 0 || ::pipe2(ends_, O_NONBLOCK) != 0) std::abort();
    const std::string bytes(4096, ' ');
    while (::write(ends_[1], bytes.data(), bytes.size()) > 0) continue;
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~FullStandardError() {
    ::dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) ::close(fd);
  }

 private:
  const int before_;
  int ends_[2];
};

// A server with an answer whose first message has been read.
class GrpcDrain : public GrpcServerTest {
 protected:
  GrpcDrain() : GrpcServerTest({.max_context_tokens = 1 << 17}, LogLevel::kInfo) {}

  // It drains, and the engine is done.
  void StartReadAndDrain(const ServerOptions& options) {
    ASSERT_NO_FATAL_FAILURE(StartAndRead(options));
    server_->BeginDrain();
    ASSERT_TRUE(engine_.Drain(Clock::now() + 10s));
  }

  void StartAndRead(const ServerOptions& options) {
    ASSERT_NO_FATAL_FAILURE(Start(options));
    stub_ = v1::Inference::NewStub(Connect());
    v1::GenerateRequest request;
    request.mutable_text()->set_text("abc");
    request.mutable_params()->mutable_stop()->set_max_tokens(kTokens);
    request.mutable_params()->mutable_stop()->set_ignore_eos(true);
    request.mutable_params()->mutable_logprobs()->set_top(20);
    reader_ = stub_->Generate(&context_, request);
    ASSERT_TRUE(reader_->Read(&message_));
  }

  std::unique_ptr<v1::Inference::Stub> stub_;
  ::grpc::ClientContext context_;
  std::unique_ptr<::grpc::ClientReader<v1::GenerateResponse>> reader_;
  v1::GenerateResponse message_;
};

TEST_F(GrpcDrain, WaitsForAReaderThatIsSlow) {
  StartReadAndDrain({});
  int tokens = message_.choices(0).token_ids_size();
  EXPECT_FALSE(server_->WaitUntilAnswered(Clock::now() + 50ms));  // nobody reads
  bool finished = false;
  std::thread waiter([&] { finished = server_->WaitUntilAnswered(Clock::now() + 20s); });
  while (reader_->Read(&message_)) {
    for (const v1::ChoiceDelta& delta : message_.choices()) tokens += delta.token_ids_size();
  }
  waiter.join();
  EXPECT_TRUE(finished);
  EXPECT_EQ(tokens, kTokens);
  EXPECT_TRUE(reader_->Finish().ok());
}

int64_t RetrySeconds(const ::grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  if (!details.ParseFromString(status.error_details())) return -1;
  for (const auto& detail : details.details()) detail.UnpackTo(&retry);
  return retry.retry_delay().seconds();
}

// As the engine has measured it, not some seconds that are always the same.
TEST_F(GrpcDrain, TellsNewCallsWhenItWillBeOver) {
  Start();
  engine_.SetCounts({.until_idle_s = 16.5});
  server_->BeginDrain();
  const auto stub = v1::Inference::NewStub(Connect());
  v1::GenerateRequest request;
  request.mutable_text()->set_text("abc");
  const auto reader = stub->Generate(&context_, request);
  EXPECT_FALSE(reader->Read(&message_));
  const ::grpc::Status refused = reader->Finish();
  EXPECT_EQ(refused.error_code(), ::grpc::UNAVAILABLE);
  EXPECT_EQ(RetrySeconds(refused), 17);
  ::grpc::ClientContext context;
  v1::ModelsResponse models;
  EXPECT_EQ(RetrySeconds(stub->Models(&context, {}, &models)), 17);
}

TEST_F(GrpcDrain, EndsWithoutAReaderThatHasStopped) {
  StartReadAndDrain({.write_timeout = 500ms});
  EXPECT_TRUE(server_->WaitUntilAnswered(Clock::now() + 10s));
}

// Whoever is refused and asks for the health sees why, whatever the server is at.
TEST_F(GrpcDrain, TurnsTheHealthBeforeItRefusesACall) {
  constexpr auto kWriteTimeout = 500ms;
  StartAndRead({.write_timeout = kWriteTimeout});
  ASSERT_TRUE(engine_.Drain(Clock::now() + 60s));  // it has said all that it will
  const auto channel = Connect();
  ASSERT_EQ(HealthOf(channel), 1);
  const FullStandardError full;
  // The watcher has found the call that is not read, and tells the log.
  std::this_thread::sleep_for(kWriteTimeout + 400ms);
  std::thread drain([&] { server_->BeginDrain(); });
  const auto asked = v1::Inference::NewStub(channel);
  ::grpc::Status status;
  do {
    ::grpc::ClientContext context;
    v1::ModelsResponse models;
    status = asked->Models(&context, {}, &models);
  } while (status.ok());
  EXPECT_EQ(status.error_code(), ::grpc::UNAVAILABLE);
  EXPECT_EQ(HealthOf(channel), 2);
  drain.join();
}

}  // namespace
}  // namespace refrain::server::rpc
