// Streams with `return_token_ids`: the ids of the prompt, which the first event of each choice
// shows, cost memory only until then, and later events no search for who is to show them.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/token_stream.h"
#include "server/log.h"
#include "server/openai/generation_reply.h"
#include "server/unread_answers.h"
#include "tests/support/cpu_time.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::ThreadCpuTime;

constexpr int kPromptTokens = 100'000;
constexpr size_t kIdsBytes = kPromptTokens * sizeof(engine::TokenId);
constexpr std::string_view kIds = "\"prompt_token_ids\":[0,1,";

engine::StreamBatch OneToken(int32_t choice) {
  engine::StreamBatch batch;
  batch.tokens.push_back({.choice = choice, .token = engine::TokenId{1}});
  return batch;
}

engine::StreamBatch OneTokenAndThePrompt() {
  engine::StreamBatch batch = OneToken(/*choice=*/0);
  for (int i = 0; i < kPromptTokens; ++i) batch.text_ids.push_back(engine::TokenId{i % 16});
  return batch;
}

// One stream's call, with its reader.
struct Reader {
  std::shared_ptr<engine::TokenStream> stream = std::make_shared<engine::TokenStream>();
  std::unique_ptr<GenerationReply> reply;

  std::string Read() const {
    http::ReplyPart part = reply->Next();
    while (part.make) part = std::exchange(part.make, nullptr)();  // a worker would
    return std::move(part.body);
  }
};

class PromptIdsTest : public ::testing::Test {
 protected:
  // Null: nobody counts.
  Reader Ask(int32_t choices, const std::shared_ptr<UnreadAnswers>& unread) {
    Reader reader;
    GenerationCall call;
    call.stream = true;
    call.requests.emplace_back().n = choices;
    call.output.token_ids = true;
    GenerationReply::Parts parts;
    parts.streams = {engine::ConsumerHandle(reader.stream)};
    parts.tokenizer = &tokenizer_;
    parts.log = &log_;
    if (unread != nullptr) unread->Count(unread->Begin(""), parts.streams[0]);
    reader.reply = std::make_unique<GenerationReply>(call, std::move(parts));
    reader.reply->Start([] {});
    return reader;
  }

  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  Log log_{LogFormat::kText, LogLevel::kError};
  const std::shared_ptr<UnreadAnswers> unread_ = UnreadAnswers::Make(1 << 20);
};

TEST_F(PromptIdsTest, CountAsUnreadNoLongerThanTheyAreToBeShown) {
  std::vector<Reader> readers;
  for (int i = 0; i < 3; ++i) {
    const Reader& reader = readers.emplace_back(Ask(/*choices=*/1, unread_));
    reader.stream->Push(OneTokenAndThePrompt());
    EXPECT_NE(reader.Read().find(kIds), std::string::npos);
    EXPECT_EQ(unread_->bytes(), 0u);
  }
  for (const Reader& reader : readers) {
    reader.stream->Push(OneToken(/*choice=*/0));
    EXPECT_NE(reader.Read().find("\"token_ids\":[1]"), std::string::npos);
  }
  EXPECT_EQ(unread_->cut(), 0);
}

// Where there is no room for all choices the second starts when the first has ended.
TEST_F(PromptIdsTest, AreKeptForTheChoicesThatHaveNotBegun) {
  const Reader reader = Ask(/*choices=*/2, unread_);
  reader.stream->Push(OneTokenAndThePrompt());
  EXPECT_NE(reader.Read().find(kIds), std::string::npos);
  EXPECT_EQ(unread_->bytes(), kIdsBytes);
  reader.stream->Push(OneToken(/*choice=*/0));
  EXPECT_EQ(reader.Read().find(kIds), std::string::npos);
  EXPECT_EQ(unread_->bytes(), kIdsBytes + sizeof(engine::TokenEvent));
  reader.stream->Push(OneToken(/*choice=*/1));
  EXPECT_NE(reader.Read().find(kIds), std::string::npos);
  EXPECT_EQ(unread_->bytes(), 0u);
}

// A choice that ends at its first token shows them with its end.
TEST_F(PromptIdsTest, AreMadeByAWorkerForAChoiceWithoutATokenToo) {
  const Reader reader = Ask(/*choices=*/1, unread_);
  engine::StreamBatch batch = OneTokenAndThePrompt();
  batch.tokens.clear();
  batch.ends.push_back({.choice = 0, .stop_token = engine::TokenId{2}});
  reader.stream->Push(std::move(batch));
  http::ReplyPart part = reader.reply->Next();
  ASSERT_TRUE(part.make);
  EXPECT_NE(part.make().body.find(kIds), std::string::npos);
  EXPECT_EQ(unread_->bytes(), 0u);
}

// What the next parts of an answer cost of which so many tokens have gathered. One thread serves
// many connections.
std::chrono::nanoseconds TimeOfParts(const Reader& reader, int gathered) {
  constexpr int kParts = 40;
  reader.stream->Push(OneTokenAndThePrompt());
  reader.Read();
  engine::StreamBatch batch;
  batch.tokens.resize(gathered);
  reader.stream->Push(std::move(batch));
  reader.Read();
  const auto begin = ThreadCpuTime();
  for (int i = 0; i < kParts; ++i) EXPECT_FALSE(reader.Read().empty());
  return ThreadCpuTime() - begin;
}

TEST_F(PromptIdsTest, AreNotSearchedForInAllThatHasGathered) {
  for (const int32_t choices : {1, 2}) {
    auto few = std::chrono::nanoseconds::max(), many = few;
    for (int i = 0; i < 3; ++i) {
      few = std::min(few, TimeOfParts(Ask(choices, nullptr), 20'000));
      many = std::min(many, TimeOfParts(Ask(choices, nullptr), 500'000));
    }
    EXPECT_LT(many, 3 * few) << choices << " choices";
  }
}

}  // namespace
}  // namespace refrain::server::openai
