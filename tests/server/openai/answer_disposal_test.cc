// Who destroys what is left of a large answer: neither the engine's thread nor one that serves
// connections, whose other clients would wait for hundreds of thousands of blocks to be freed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "engine/token_stream.h"
#include "server/log.h"
#include "server/openai/generation_reply.h"
#include "server/unread_answers.h"
#include "tests/support/fake_tokenizer.h"

namespace {

thread_local int64_t frees = 0;

}  // namespace

// Not inlined: g++ warns of a malloc() or free() that it sees beside a delete or new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  ++frees;
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  ++frees;
  std::free(memory);
}

namespace refrain::server::openai {
namespace {

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
  void Ask(bool stream) {
    GenerationCall call;
    call.stream = stream;
    call.requests.emplace_back();
    call.output.logprobs = 2;
    GenerationReply::Parts parts;
    parts.streams = {engine::ConsumerHandle(stream_)};
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
  frees = 0;
  reply_.reset();
  EXPECT_LT(frees, kFewFrees);
}

TEST_F(AnswerDisposalTest, TheClientGoesAwayFromAWholeAnswer) {
  Ask(/*stream=*/false);
  stream_->Push(ManyTokens());
  http::ReplyPart part = reply_->Next();
  ASSERT_TRUE(part.make);
  part = std::exchange(part.make, nullptr)();  // a worker would
  EXPECT_FALSE(part.last);
  frees = 0;
  reply_.reset();
  EXPECT_LT(frees, kFewFrees);
}

TEST_F(AnswerDisposalTest, AllOfItWasTaken) {
  Ask(/*stream=*/true);
  stream_->Push(ManyTokens());
  int64_t most = 0;
  for (bool more = true; more;) {
    frees = 0;
    more = !reply_->Next().body.empty();
    most = std::max(most, frees);
  }
  EXPECT_LT(most, kFewFrees) << "in one call";
}

TEST_F(AnswerDisposalTest, ItIsCutWhileItsClientDoesNotRead) {
  Ask(/*stream=*/true);
  stream_->Push(ManyTokens());
  EXPECT_FALSE(reply_->Next().body.empty());
  stream_->Cut(absl::UnavailableError("not read"));
  frees = 0;
  reply_->WhileBlocked();
  EXPECT_LT(frees, kFewFrees);
}

// By the engine's thread, which makes it larger than it may be.
TEST_F(AnswerDisposalTest, ItIsCutWhereItWaits) {
  unread_->Count(unread_->Begin(""), stream_);
  engine::StreamBatch batch = ManyTokens();
  frees = 0;
  stream_->Push(std::move(batch));
  EXPECT_TRUE(stream_->cut());
  EXPECT_LT(frees, kFewFrees);
}

}  // namespace
}  // namespace refrain::server::openai
