// What one streamed token costs between the engine's thread and the socket, in things that can be
// counted whatever else the machine does: parts to write, and allocations.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/token_stream.h"
#include "server/http/wire.h"
#include "server/openai/generation_reply.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/heap_counts.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::HeapCountsOfThread;

constexpr int32_t kTokens = 100;

struct Shape {
  Endpoint endpoint;
  // Where the prompt leaves a model that thinks; none: its template has no thoughts.
  std::optional<engine::ReasoningStart> reasoning = std::nullopt;
};

class StreamCostTest : public ::testing::TestWithParam<Shape> {
 protected:
  StreamCostTest() {
    GenerationCall call;
    call.endpoint = GetParam().endpoint;
    if (const auto& reasoning = GetParam().reasoning; reasoning.has_value()) {
      call.output.reasoning = engine::ReasoningFormat::kThink;
      stream_->SetReasoningStart(*reasoning);
    }
    call.stream = true;
    call.requests.emplace_back();
    GenerationReply::Parts parts;
    parts.request_id = "0123456789abcdef";
    parts.streams = {engine::ConsumerHandle(stream_)};
    parts.tokenizer = &tokenizer_;
    parts.model = "model";
    parts.log = &log_;
    reply_ = std::make_unique<GenerationReply>(call, std::move(parts));
    reply_->Start([this] { ++wakeups_; });
  }

  static engine::StreamBatch BatchOf(int32_t tokens) {
    engine::StreamBatch batch;
    for (int32_t i = 0; i < tokens; ++i) {
      batch.tokens.push_back({.token = engine::TokenId{i % 8}});
    }
    batch.usage.completion_tokens = tokens;
    return batch;
  }

  // Frames the next part; the bytes are as good as sent.
  void SendPart() {
    bytes_.clear();
    framer_.FrameTo(reply_->Next(), &bytes_);
  }

  static int64_t CountEvents(const std::string& bytes) {
    int64_t count = 0;
    for (size_t at = 0; (at = bytes.find("data: ", at)) != std::string::npos; ++at) ++count;
    return count;
  }

  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  Log log_{LogFormat::kText, LogLevel::kError};
  std::shared_ptr<engine::TokenStream> stream_ = std::make_shared<engine::TokenStream>();
  std::unique_ptr<GenerationReply> reply_;
  http::ReplyFramer framer_{{.request_id = "0123456789abcdef"}};
  std::string bytes_;
  int wakeups_ = 0;
};

TEST_P(StreamCostTest, ATokenCostsOneAllocation) {
  stream_->Push(BatchOf(1));
  SendPart();  // with the head
  int64_t counted = 0;
  for (int32_t i = 0; i < kTokens; ++i) {
    engine::StreamBatch batch = BatchOf(1);
    const int64_t before = HeapCountsOfThread().allocations;
    stream_->Push(std::move(batch));
    SendPart();
    counted += HeapCountsOfThread().allocations - before;
    ASSERT_EQ(CountEvents(bytes_), 1);
  }
  EXPECT_EQ(wakeups_, kTokens + 1);
  // The part's body; all else is used again and again.
  EXPECT_LE(counted, kTokens + 10);
}

TEST_P(StreamCostTest, TokensThatWaitTogetherAreOneWakeupAndOnePart) {
  for (int32_t i = 0; i < kTokens; ++i) stream_->Push(BatchOf(1));
  EXPECT_EQ(wakeups_, 1);
  SendPart();
  // A response's own begin, and that of its message and its text.
  const int64_t first = GetParam().endpoint == Endpoint::kResponses ? 4 : 0;
  EXPECT_EQ(CountEvents(bytes_), kTokens + first);
  SendPart();
  EXPECT_EQ(bytes_, "");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StreamCostTest,
    ::testing::Values(Shape{Endpoint::kCompletions}, Shape{Endpoint::kChatCompletions},
                      Shape{Endpoint::kResponses},
                      Shape{Endpoint::kChatCompletions, engine::ReasoningStart::kInside},
                      Shape{Endpoint::kChatCompletions, engine::ReasoningStart::kBefore}));

}  // namespace
}  // namespace refrain::server::openai
