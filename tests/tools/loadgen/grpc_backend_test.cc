#include "tools/loadgen/grpc_backend.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/error_details.pb.h"
#include "proto/inference.grpc.pb.h"

namespace refrain::loadgen {
namespace {

// Answers with ids 1, 2, ... as many as were asked for; the first id of the prompt may ask for
// something else.
class FakeService final : public v1::Inference::Service {
 public:
  enum : int32_t {
    kBusy = 901,
    kBreak = 902,
    kHang = 903,
    kNothing = 904,
    kNoEnd = 905,
    kEnd = 906,
    kZero = 907,
    kHold = 908,  // until Release
    kComeBack = 909,
    kLate = 910,     // by a deadline of the server's own
    kHeldBack = 911  // text behind its tokens
  };

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_ = *request;
      const auto key = context->client_metadata().find("authorization");
      if (key != context->client_metadata().end()) {
        last_key_ = std::string(key->second.data(), key->second.size());
      }
    }
    const int32_t order = request->tokens().ids_size() > 0 ? request->tokens().ids(0) : 0;
    if (order == kBusy) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"};
    if (order == kComeBack) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", ComeBack()};
    if (order == kNothing) return grpc::Status::OK;
    if (order == kLate) return {grpc::StatusCode::DEADLINE_EXCEEDED, "limits.request_timeout_s"};
    if (order == kHold) Hold(context->peer());
    if (order == kEnd || order == kZero) {
      v1::GenerateResponse response;
      response.add_choices()->set_finish_reason(v1::FINISH_REASON_STOP);
      response.mutable_usage()->set_completion_tokens(order == kEnd ? 1 : 0);
      writer->Write(response);
      return grpc::Status::OK;
    }
    if (order == kHeldBack) {
      for (const auto& [id, text] : {std::pair(1, "a"), {0, "b"}, {0, ""}, {2, "c"}}) {
        v1::GenerateResponse response;
        v1::ChoiceDelta* choice = response.add_choices();
        if (id > 0) choice->add_token_ids(id);
        choice->set_text(text);
        if (id == 2) choice->set_finish_reason(v1::FINISH_REASON_STOP);
        writer->Write(response);
      }
      return grpc::Status::OK;
    }
    const int32_t tokens = request->params().stop().max_tokens();
    for (int32_t i = 1; i <= tokens; ++i) {
      if (order == kBreak && i == 3) return {grpc::StatusCode::UNAVAILABLE, "stopping"};
      while (order == kHang && !context->IsCancelled()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      v1::GenerateResponse response;
      v1::ChoiceDelta* choice = response.add_choices();
      choice->add_token_ids(i);
      choice->set_text("t");
      if (i == tokens) {
        if (order != kNoEnd) choice->set_finish_reason(v1::FINISH_REASON_LENGTH);
        response.mutable_usage()->set_prompt_tokens(request->tokens().ids_size());
        response.mutable_usage()->set_completion_tokens(tokens);
        response.mutable_usage()->set_cached_tokens(1);
      }
      writer->Write(response);
    }
    return grpc::Status::OK;
  }

  v1::GenerateRequest last() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }
  std::string last_key() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_key_;
  }
  // Whether so many calls are held at once.
  bool WaitForHeld(int calls, std::chrono::seconds patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return held_ == calls; });
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++releases_;
    changed_.notify_all();
  }
  // Calls that were held, by connection.
  std::map<std::string, int> peers() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peers_;
  }

 private:
  static std::string ComeBack() {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(7);
    retry.mutable_retry_delay()->set_nanos(500'000'000);
    google::rpc::Status status;
    status.add_details()->PackFrom(google::rpc::BadRequest());
    status.add_details()->PackFrom(retry);
    return status.SerializeAsString();
  }

  void Hold(const std::string& peer) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++peers_[peer];
    ++held_;
    changed_.notify_all();
    changed_.wait(lock, [&, before = releases_] { return releases_ > before; });
    --held_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int held_ = 0;  // like all below, guarded by mutex_
  int releases_ = 0;
  std::map<std::string, int> peers_;
  v1::GenerateRequest last_;
  std::string last_key_;
};

// Stops the loop when all expected answers have ended.
struct Received final : AnswerSink {
  Received(EventLoop* loop, int* missing) : loop(loop), missing(missing) {}
  void OnTokens(double at_s, int32_t tokens, std::string_view more,
                std::span<const int32_t> more_ids) override {
    count += tokens;
    text += more;
    ids.insert(ids.end(), more_ids.begin(), more_ids.end());
  }
  void OnEnd(double, const AnswerEnd& ended) override {
    end = ended;
    if (--*missing == 0) loop->Stop();
  }
  std::string kind() const { return end.failure.has_value() ? end.failure->kind : "none"; }

  EventLoop* loop;
  int* missing;
  int32_t count = 0;
  std::string text;
  std::vector<int32_t> ids;
  AnswerEnd end;
};

class GrpcBackendTest : public ::testing::Test {
 public:
  ~GrpcBackendTest() override {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

 protected:
  GrpcBackendTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    options_.address = "127.0.0.1:" + std::to_string(port_);
  }

  Received Ask(const GenerationRequest& request) {
    int missing = 1;
    AsioLoop loop;
    const auto backend = MakeGrpcBackend(&loop, options_);
    Received received(&loop, &missing);
    loop.Post([&] { backend->Start(backend->Encode(request), &received); });
    loop.Run();
    return received;
  }

  static GenerationRequest Ids(std::vector<int32_t> ids) {
    return {.form = PromptForm::kTokenIds, .token_ids = std::move(ids), .output_tokens = 5};
  }

  FakeService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  GrpcBackendOptions options_;
};

TEST_F(GrpcBackendTest, SendsIdsAndReceivesTokensAndUsage) {
  options_.model = "m";
  options_.api_key = "secret";
  const Received received = Ask(Ids({7, 8, 9}));
  EXPECT_EQ(received.kind(), "none");
  EXPECT_EQ(received.ids, (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(received.text, "ttttt");
  EXPECT_EQ(received.end.prompt_tokens, 3);
  EXPECT_EQ(received.end.output_tokens, 5);
  EXPECT_EQ(received.end.cached_tokens, 1);
  EXPECT_GT(received.end.finished_s.value_or(0), 0);
  EXPECT_EQ(service_.last().model(), "m");
  EXPECT_EQ(service_.last().tokens().ids(2), 9);
  EXPECT_TRUE(service_.last().params().stop().ignore_eos());
  EXPECT_EQ(service_.last().params().sampling().temperature(), 0);
  EXPECT_EQ(service_.last_key(), "Bearer secret");
}

TEST_F(GrpcBackendTest, SendsTextAndMessages) {
  Ask({.form = PromptForm::kText, .text = "a\nb"});
  EXPECT_EQ(service_.last().text().text(), "a\nb");
  Ask({.form = PromptForm::kChat, .messages = {{"user", "a"}, {"assistant", "b"}}});
  ASSERT_EQ(service_.last().chat().messages_size(), 2);
  EXPECT_EQ(service_.last().chat().messages(1).role(), "assistant");
}

TEST_F(GrpcBackendTest, TellsKindsOfFailures) {
  options_.timeout_s = 10;
  EXPECT_EQ(Ask(Ids({FakeService::kBusy})).kind(), "grpc_RESOURCE_EXHAUSTED");
  EXPECT_EQ(Ask(Ids({FakeService::kBreak})).kind(), "broken_stream");
  EXPECT_EQ(Ask(Ids({FakeService::kNothing})).kind(), "no_tokens");
  EXPECT_EQ(Ask(Ids({FakeService::kNoEnd})).kind(), "broken_stream");
  EXPECT_EQ(Ask(Ids({FakeService::kZero})).kind(), "no_tokens");
  EXPECT_EQ(Ask(Ids({FakeService::kEnd})).kind(), "none");
  EXPECT_EQ(Ask(Ids({FakeService::kLate})).kind(), "grpc_DEADLINE_EXCEEDED") << "not ours";
  options_.timeout_s = 0.3;
  EXPECT_EQ(Ask(Ids({FakeService::kHang})).kind(), "timeout");
  options_.timeout_s = 10;
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_EQ(Ask(Ids({1})).kind(), "connection_refused");
}

// As of an end of a character, or what might have begun a stop string.
TEST_F(GrpcBackendTest, TextThatWasHeldBackIsOfTheAnswerAndNoToken) {
  const Received received = Ask(Ids({FakeService::kHeldBack}));
  EXPECT_EQ(received.kind(), "none");
  EXPECT_EQ(received.text, "abc");
  EXPECT_EQ(received.count, 2);
  EXPECT_EQ(received.ids, (std::vector<int32_t>{1, 2}));
}

TEST_F(GrpcBackendTest, WhatIsCancelledIsUnfinishedAtOnce) {
  int missing = 2;
  AsioLoop loop;
  const auto backend = MakeGrpcBackend(&loop, options_);
  Received one(&loop, &missing);
  Received two(&loop, &missing);
  loop.Post([&] {
    backend->Start(backend->Encode(Ids({FakeService::kHang})), &one);
    backend->Start(backend->Encode(Ids({FakeService::kHang})), &two);
  });
  loop.CallAt(loop.NowS() + 0.1, [&] {
    backend->CancelAll();
    EXPECT_EQ(one.kind(), "unfinished");
  });
  loop.Run();
  EXPECT_EQ(two.kind(), "unfinished");
}

TEST_F(GrpcBackendTest, ManyCallsAtOnceAllEnd) {
  constexpr int kCalls = 200;
  int missing = kCalls;
  AsioLoop loop;
  const auto backend = MakeGrpcBackend(&loop, options_);
  std::vector<Received> received(kCalls, Received(&loop, &missing));
  loop.Post([&] {
    for (Received& one : received) backend->Start(backend->Encode(Ids({1, 2})), &one);
  });
  loop.Run();
  for (const Received& one : received) {
    EXPECT_EQ(one.kind(), "none");
    EXPECT_EQ(one.count, 5);
  }
}

// Beyond what a connection carries, a client's library keeps calls to itself.
TEST_F(GrpcBackendTest, MoreCallsThanAConnectionCarriesAreAllAtTheServer) {
  constexpr int kCalls = 250;
  EXPECT_EQ(options_.calls_per_connection, 100);
  AsioLoop loop;
  const auto backend = MakeGrpcBackend(&loop, options_);
  for (int round = 1; round <= 2; ++round) {
    int missing = kCalls;
    std::vector<Received> received(kCalls, Received(&loop, &missing));
    loop.Post([&] {
      for (Received& one : received) {
        backend->Start(backend->Encode(Ids({FakeService::kHold})), &one);
      }
    });
    bool all_held = false;
    std::thread releaser([&] {
      all_held = service_.WaitForHeld(kCalls, std::chrono::seconds(20));
      for (int i = 0; i < (all_held ? 1 : kCalls); ++i) {
        service_.Release();
        if (!all_held) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    loop.Run();
    releaser.join();
    EXPECT_TRUE(all_held) << "some wait in the client";
    // The second round has no more connections than the first.
    ASSERT_EQ(service_.peers().size(), 3u);
    for (const auto& [peer, calls] : service_.peers()) EXPECT_LE(calls, 100 * round);
    for (const Received& one : received) EXPECT_EQ(one.kind(), "none");
  }
}

TEST_F(GrpcBackendTest, AConnectionHasNoMoreCallsAtATimeThanItMay) {
  constexpr int kCalls = 5;
  options_.calls_per_connection = 1;
  AsioLoop loop;
  const auto backend = MakeGrpcBackend(&loop, options_);
  int missing = kCalls;
  std::vector<Received> received(kCalls, Received(&loop, &missing));
  loop.Post([&] {
    for (Received& one : received) backend->Start(backend->Encode(Ids({FakeService::kHold})), &one);
  });
  std::thread releaser([&] {
    EXPECT_TRUE(service_.WaitForHeld(kCalls, std::chrono::seconds(20)));
    service_.Release();
  });
  loop.Run();
  releaser.join();
  EXPECT_EQ(service_.peers().size(), static_cast<size_t>(kCalls));
}

TEST_F(GrpcBackendTest, TellsWhenARefusedCallMayComeBack) {
  EXPECT_EQ(Ask(Ids({FakeService::kComeBack})).end.retry_after_s, 7.5);
  EXPECT_EQ(Ask(Ids({FakeService::kBusy})).end.retry_after_s, std::nullopt);
}

// A thread of gRPC's that held the last of a back end's channel would join itself, and abort.
TEST_F(GrpcBackendTest, BackEndsThatComeAndGoLeaveNoThreadBehind) {
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Ask(Ids({1})).count, 5);
}

}  // namespace
}  // namespace refrain::loadgen
