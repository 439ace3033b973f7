// Who destroys what is left of a large answer: neither the engine's thread nor one that serves
// connections, whose other clients would wait for hundreds of thousands of blocks to be freed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/token_stream.h"
#include "server/log.h"
#include "server/openai/generation_reply.h"
#include "server/unread_answers.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/heap_counts.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::HeapCountsOfThread;

constexpr int kTokens = 20'000;  // with a block each
constexpr int64_t kFewFrees = 5000;

engine::StreamBatch ManyTokens() {
  engine::StreamBatch batch;
  for (int i = 0; i < kTokens; ++i) {
    engine::TokenEvent& event = batch.tokens.emplace_back();
    event.token = engine::TokenId{i % 16};
    event.logprob = engine::TokenLogprob{event.token, -0.5f, 1};
    event.top.assign(2, *event.logprob);
  }
  return batch;
}

class AnswerDisposalTest : public ::testing::Test {
 protected:
  void Ask(bool stream, std::vector<std::shared_ptr<engine::TokenStream>> streams = {}) {
    if (streams.empty()) streams = {stream_};
    GenerationCall call;
    call.stream = stream;
    call.requests.resize(streams.size());
    call.output.logprobs = 2;
    GenerationReply::Parts parts;
    for (const auto& one : streams) parts.streams.push_back(engine::ConsumerHandle(one));
    parts.tokenizer = &tokenizer_;
    parts.log = &log_;
    parts.disposal = unread_->disposal();
    reply_ = std::make_unique<GenerationReply>(call, std::move(parts));
    reply_->Start([] {});
  }

  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  Log log_{LogFormat::kText, LogLevel::kError};
  const std::shared_ptr<UnreadAnswers> unread_ = UnreadAnswers::Make(1 << 20);
  const std::shared_ptr<engine::TokenStream> stream_ = std::make_shared<engine::TokenStream>();
  std::unique_ptr<GenerationReply> reply_;
};

TEST_F(AnswerDisposalTest, TheClientGoesAway) {
  Ask(/*stream=*/true);
  stream_->Push(ManyTokens());
  EXPECT_FALSE(reply_->Next().body.empty());
  stream_->Push(ManyTokens());
  HeapCountsOfThread().frees = 0;
  reply_.reset();
  EXPECT_LT(HeapCountsOfThread().frees, kFewFrees);
}

TEST_F(AnswerDisposalTest, TheClientGoesAwayFromAWholeAnswer) {
  Ask(/*stream=*/false);
  stream_->Push(ManyTokens());
  http::ReplyPart part = reply_->Next();
  ASSERT_TRUE(part.make);
  part = std::exchange(part.make, nullptr)();  // a worker would
  EXPECT_FALSE(part.last);
  HeapCountsOfThread().frees = 0;
  reply_.reset();
  EXPECT_LT(HeapCountsOfThread().frees, kFewFrees);
}

TEST_F(AnswerDisposalTest, AllOfItWasTaken) {
  Ask(/*stream=*/true);
  stream_->Push(ManyTokens());
  int64_t most = 0;
  for (bool more = true; more;) {
    HeapCountsOfThread().frees = 0;
    more = !reply_->Next().body.empty();
    most = std::max(most, HeapCountsOfThread().frees);
  }
  EXPECT_LT(most, kFewFrees) << "in one call";
}

TEST_F(AnswerDisposalTest, ItIsCutWhileItsClientDoesNotRead) {
  Ask(/*stream=*/true);
  stream_->Push(ManyTokens());
  EXPECT_FALSE(reply_->Next().body.empty());
  stream_->Cut(absl::UnavailableError("not read"));
  HeapCountsOfThread().frees = 0;
  reply_->WhileBlocked();
  EXPECT_LT(HeapCountsOfThread().frees, kFewFrees);
}

// The thread that cuts has not come to the second yet.
TEST_F(AnswerDisposalTest, TheFirstOfTwoPromptsIsCutWhileItsClientDoesNotRead) {
  const auto second = std::make_shared<engine::TokenStream>();
  Ask(/*stream=*/true, {stream_, second});
  stream_->Push(ManyTokens());
  second->Push(ManyTokens());
  stream_->Cut(absl::UnavailableError("not read"));
  HeapCountsOfThread().frees = 0;
  reply_->WhileBlocked();
  EXPECT_LT(HeapCountsOfThread().frees, kFewFrees);
}

// By the engine's thread, which makes it larger than it may be.
TEST_F(AnswerDisposalTest, ItIsCutWhereItWaits) {
  unread_->Count(unread_->Begin(""), stream_);
  engine::StreamBatch batch = ManyTokens();
  HeapCountsOfThread().frees = 0;
  stream_->Push(std::move(batch));
  EXPECT_TRUE(stream_->cut());
  EXPECT_LT(HeapCountsOfThread().frees, kFewFrees);
}

}  // namespace
}  // namespace refrain::server::openai
