// Who destroys a large answer: not the threads that all streams share.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "engine/token_stream.h"
#include "proto/inference.pb.h"
#include "server/disposal.h"
#include "server/grpc/answer_writer.h"
#include "tests/support/fake_engine.h"
#include "tests/support/heap_counts.h"

namespace refrain::server::rpc {
namespace {

using ::refrain::testing::HeapCountsOfThread;

constexpr int kTokens = 20'000;  // with a block each
constexpr int64_t kFewFrees = 5000;

engine::StreamBatch ManyTokens() {
  engine::StreamBatch batch;
  for (int i = 0; i < kTokens; ++i) {
    engine::TokenEvent& event = batch.tokens.emplace_back();
    event.token = engine::TokenId{'a' + i % 16};
    event.logprob = engine::TokenLogprob{event.token, -0.5f, 1};
    event.top.assign(2, *event.logprob);
  }
  return batch;
}

class GrpcAnswerDisposalTest : public ::testing::Test {
 protected:
  // Frees of this thread.
  template <typename F>
  static int64_t FreesOf(const F& work) {
    HeapCountsOfThread().frees = 0;
    work();
    return HeapCountsOfThread().frees;
  }

  testing::ByteTokenizer tokenizer_;
  std::optional<AnswerWriter> writer_{std::in_place, &tokenizer_, AnswerOptions{},
                                      std::make_shared<Disposal>()};
};

TEST_F(GrpcAnswerDisposalTest, AllOfItWasWritten) {
  writer_->Take(ManyTokens());
  v1::GenerateResponse message;
  int64_t most = 0;
  while (!writer_->drained()) {
    most = std::max(most, FreesOf([&] { writer_->Fill(&message); }));
  }
  EXPECT_LT(most, kFewFrees) << "in one call";
  EXPECT_LT(FreesOf([&] { writer_->Take({}); }), kFewFrees);
}

TEST_F(GrpcAnswerDisposalTest, ItsClientGoesAway) {
  writer_->Take(ManyTokens());
  EXPECT_LT(FreesOf([&] { writer_->Take(ManyTokens()); }), kFewFrees);
  EXPECT_LT(FreesOf([&] { writer_.reset(); }), kFewFrees);
}

}  // namespace
}  // namespace refrain::server::rpc
