// gRPC clients that stop reading: nobody waits for them, and what they hold comes back.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "server/unread_answers.h"
#include "tests/server/grpc/server_fixture.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/eventually.h"
#include "tests/support/rounds.h"
#include "tests/support/slow_build.h"

namespace refrain::server::rpc {
namespace {

using ::grpc::ClientContext;
using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::kSlowBuildFactor;
using ::refrain::testing::SomeRoundKeeps;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Reader = std::unique_ptr<::grpc::ClientReader<v1::GenerateResponse>>;

constexpr int kTokens = 20'000;
constexpr auto kWriteTimeout = 2s;

class GrpcSlowReaders : public GrpcServerTest {
 protected:
  GrpcSlowReaders() : GrpcServerTest({.max_context_tokens = 1 << 17}) {}

  void Start(ServerOptions options) {
    options.on_call = [this](const CallRecord& call) {
      if (call.code == absl::StatusCode::kCancelled) ++cancelled_calls_;
      if (call.code == absl::StatusCode::kUnavailable) ++refused_calls_;
    };
    GrpcServerTest::Start(std::move(options));
  }

  // A connection of its own, whose client makes room as soon as it has read, not megabytes later.
  std::unique_ptr<v1::Inference::Stub> Connect() const {
    ::grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    own.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return v1::Inference::NewStub(::grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(server_->port()), ::grpc::InsecureChannelCredentials(), own));
  }

  // With log-probabilities: more than flow control lets go.
  static v1::GenerateRequest ManyBytes() {
    v1::GenerateRequest request;
    request.mutable_text()->set_text("abcdefgh");
    request.mutable_params()->mutable_stop()->set_max_tokens(kTokens);
    request.mutable_params()->mutable_stop()->set_ignore_eos(true);
    request.mutable_params()->mutable_logprobs()->set_top(20);
    return request;
  }

  // The middle of fifty short calls.
  double ShortCallMs(v1::Inference::Stub* stub) const {
    v1::GenerateRequest request;
    request.mutable_text()->set_text("hi");
    std::vector<double> times_ms;
    for (int i = 0; i < 50; ++i) {
      const auto begin = Clock::now();
      ClientContext context;
      const Reader reader = stub->Generate(&context, request);
      v1::GenerateResponse message;
      while (reader->Read(&message)) {
      }
      EXPECT_TRUE(reader->Finish().ok());
      times_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    std::nth_element(times_ms.begin(), times_ms.begin() + 25, times_ms.end());
    return times_ms[25];
  }

  static void EndNext(::grpc::CompletionQueue* queue) {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_EQ(queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + 20s),
              ::grpc::CompletionQueue::GOT_EVENT);
  }

  std::atomic<int> cancelled_calls_{0};
  std::atomic<int> refused_calls_{0};
};

TEST_F(GrpcSlowReaders, OnesThatStopDelayNobodyAndGiveSlotsAndMemoryBack) {
  constexpr int kReaders = 4;
  Start({.write_timeout = kWriteTimeout});
  const auto good = Connect();
  ShortCallMs(good.get());
  const size_t before = AllocatedBytes();
  {
    std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
    std::vector<ClientContext> contexts(kReaders);
    std::vector<Reader> readers;
    v1::GenerateResponse message;
    for (ClientContext& context : contexts) {
      stubs.push_back(Connect());
      readers.push_back(stubs.back()->Generate(&context, ManyBytes()));
      ASSERT_TRUE(readers.back()->Read(&message));
    }
    // The engine waits for none of them.
    ASSERT_TRUE(engine_.WaitForRunning(0));
    const size_t stalled = AllocatedBytes();
    constexpr double kMostMs = 10.0 * kSlowBuildFactor;
    double beside_ms = std::numeric_limits<double>::infinity();
    SomeRoundKeeps(
        [&] {
          beside_ms = std::min(beside_ms, ShortCallMs(good.get()));
          return beside_ms < kMostMs;
        },
        kWriteTimeout / 2);
    std::printf("beside %d that do not read: %.2f ms; they hold %zu KiB\n", kReaders, beside_ms,
                (stalled - before) >> 10);
    EXPECT_LT(beside_ms, kMostMs);
    EXPECT_FALSE(server_->WaitUntilAnswered(Clock::now()));
    EXPECT_TRUE(server_->WaitUntilAnswered(Clock::now() + 10s));
    EXPECT_EQ(cancelled_calls_, kReaders);
    for (const Reader& reader : readers) {
      while (reader->Read(&message)) {  // what was on its way
      }
      EXPECT_EQ(reader->Finish().error_code(), ::grpc::CANCELLED);
    }
  }
  ShortCallMs(good.get());
  const size_t after = AllocatedBytes();
  EXPECT_LT(after, before + (8u << 20)) << "before " << before;
}

// Long before their time to read is over.
TEST_F(GrpcSlowReaders, WhatNobodyReadsIsBounded) {
  constexpr int kReaders = 8;  // of 6 MB each
  constexpr size_t kMost = 16 << 20;
  const auto unread = UnreadAnswers::Make(kMost);
  Start({.unread = unread});
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
  std::vector<ClientContext> contexts(kReaders);
  std::vector<Reader> readers;
  v1::GenerateResponse message;
  for (ClientContext& context : contexts) {
    stubs.push_back(Connect());
    readers.push_back(stubs.back()->Generate(&context, ManyBytes()));
    ASSERT_TRUE(readers.back()->Read(&message));
  }
  ASSERT_TRUE(engine_.WaitForRunning(0));
  EXPECT_LE(unread->bytes(), kMost);
  EXPECT_GE(unread->cut(), kReaders - 3);
  const auto cut = static_cast<int>(unread->cut());
  EXPECT_TRUE(testing::Eventually([&] { return cancelled_calls_ + refused_calls_ == cut; }))
      << cancelled_calls_ << " " << refused_calls_;
  int complete = 0;
  for (const Reader& reader : readers) {
    while (reader->Read(&message)) {
    }
    complete += reader->Finish().ok() ? 1 : 0;
  }
  EXPECT_EQ(complete, kReaders - cut) << "and who reads in the end has all of it";
}

TEST_F(GrpcSlowReaders, OneThatIsCutAndReadsOnIsInTheLogToo) {
  const auto unread = UnreadAnswers::Make(1 << 20);
  Start({.unread = unread});
  ::testing::internal::CaptureStderr();
  const auto stub = Connect();
  ClientContext context;
  const Reader reader = stub->Generate(&context, ManyBytes());
  v1::GenerateResponse message;
  EXPECT_TRUE(reader->Read(&message));
  EXPECT_TRUE(engine_.WaitForRunning(0));
  EXPECT_EQ(unread->cut(), 1);
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), ::grpc::UNAVAILABLE);
  EXPECT_TRUE(testing::Eventually([&] { return refused_calls_ == 1; }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t line = log.find("the answer is cut: ");
  ASSERT_NE(line, std::string::npos) << log;
  EXPECT_EQ(log.find("is cut: ", line + 20), std::string::npos) << "once: " << log;
}

TEST_F(GrpcSlowReaders, AnswersInOneMessageEndTooWhenNobodyReadsThem) {
  Start({.write_timeout = 1s});
  const auto stub = Connect();
  v1::TokenizeRequest text;
  text.set_text(std::string(1 << 20, 'a'));
  v1::DetokenizeRequest ids;
  for (int i = 0; i < 1 << 20; ++i) ids.add_token_ids('a');
  ::grpc::CompletionQueue queue;
  ClientContext tokenize_context, detokenize_context;
  const auto tokenize = stub->PrepareAsyncTokenize(&tokenize_context, text, &queue);
  const auto detokenize = stub->PrepareAsyncDetokenize(&detokenize_context, ids, &queue);
  // The answers' messages are not asked for.
  tokenize->StartCall();
  tokenize->ReadInitialMetadata(nullptr);
  detokenize->StartCall();
  detokenize->ReadInitialMetadata(nullptr);
  EndNext(&queue);
  EndNext(&queue);
  EXPECT_FALSE(server_->WaitUntilAnswered(Clock::now()));
  EXPECT_TRUE(server_->WaitUntilAnswered(Clock::now() + 10s));
  EXPECT_EQ(cancelled_calls_, 2);
  v1::TokenizeResponse tokenized;
  v1::DetokenizeResponse detokenized;
  ::grpc::Status tokenize_status, detokenize_status;
  tokenize->Finish(&tokenized, &tokenize_status, nullptr);
  detokenize->Finish(&detokenized, &detokenize_status, nullptr);
  EndNext(&queue);
  EndNext(&queue);
  EXPECT_EQ(tokenize_status.error_code(), ::grpc::CANCELLED);
  EXPECT_EQ(detokenize_status.error_code(), ::grpc::CANCELLED);
}

TEST_F(GrpcSlowReaders, OneThatReadsSlowlyButSteadilyGetsAll) {
  constexpr auto kTime = 4s;
  Start({.write_timeout = 1500ms});
  const auto stub = Connect();
  ClientContext context;
  const Reader reader = stub->Generate(&context, ManyBytes());
  v1::GenerateResponse message;
  int tokens = 0;
  const auto begin = Clock::now();
  while (reader->Read(&message)) {
    for (const v1::ChoiceDelta& delta : message.choices()) tokens += delta.token_ids_size();
    std::this_thread::sleep_until(begin + kTime * tokens / kTokens);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, kTokens);
  EXPECT_GE(Clock::now() - begin, kTime) << "longer than a message may take";
}

}  // namespace
}  // namespace refrain::server::rpc
