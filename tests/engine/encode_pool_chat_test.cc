// Conversations on their way through the pool, and prompts for which there is no memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/encode_pool.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja/value.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/heap_counts.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::HeapCountsOfThread;
using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{% for m in messages %}{{ m.content }}"
    "{% if m.content == 'slow' %}{% for a in range(1000) %}{% for b in range(1000) %}"
    "{% endfor %}{% endfor %}{% endif %}{% endfor %}";

// Who asks for the time is refused no memory any more: a request with a deadline, as its turn
// comes.
class RelentingClock : public testing::FakeClock {
 public:
  TimePoint Now() const override {
    HeapCountsOfThread().until_refused = -1;
    return FakeClock::Now();
  }
};

class EncodePoolChatTest : public ::testing::Test {
 protected:
  EncodePoolChatTest()
      : chat_(*ChatTemplate::Create(kTemplate, "", "")),
        encoder_(&tokenizer_, chat_.get(),
                 {.max_context_tokens = 1 << 22, .kv_capacity_tokens = 1 << 22}) {
    pool_ = std::make_unique<EncodePool>(
        &encoder_, &clock_, 1,
        [this](std::unique_ptr<EncodedRequest> request) {
          std::lock_guard lock(mutex_);
          done_.push_back(std::move(request));
          changed_.notify_all();
          if (at_end) at_end();
        },
        [this] {
          if (at_rest) at_rest();
          return false;
        });
  }
  void TearDown() override { pool_->Stop(); }

  std::unique_ptr<EncodedRequest> Make(uint64_t number, size_t messages,
                                       const std::string& content) {
    auto request = std::make_unique<EncodedRequest>();
    request->number = number;
    request->ticket = *ledger_->Enter("");
    request->stream = std::make_shared<TokenStream>();
    jinja::Map message;
    message.Set("role", jinja::Value::String("user"));
    message.Set("content", jinja::Value::String(content));
    ChatPrompt chat;
    chat.input.messages = jinja::Value::MakeList(
        jinja::Value::List(messages, jinja::Value::MakeMap(std::move(message))));
    request->request.prompt = std::move(chat);
    return request;
  }

  std::vector<uint64_t> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return done_.size() >= count; });
    std::vector<uint64_t> numbers;
    for (const auto& request : done_) numbers.push_back(request->number);
    return numbers;
  }

  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  RelentingClock clock_;
  std::shared_ptr<AdmissionLedger> ledger_ = std::make_shared<AdmissionLedger>(100, 1 << 30);
  std::unique_ptr<ChatTemplate> chat_;
  PromptEncoder encoder_;
  std::function<void()> at_rest;  // between two slices of the long lane
  std::function<void()> at_end;   // where a prompt is encoded
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<EncodedRequest>> done_;
  std::unique_ptr<EncodePool> pool_;
};

TEST_F(EncodePoolChatTest, AShortConversationOvertakesOneOfVeryManyMessages) {
  std::atomic<bool> short_done = false, rested = false;
  at_rest = [&] {
    rested = true;
    EXPECT_TRUE(Eventually([&] { return short_done.load(); }));
  };
  pool_->Push(Make(1, 20'000, "abc"));
  pool_->Push(Make(2, 3, "abc"));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2});
  short_done = true;
  EXPECT_EQ(WaitFor(2), (std::vector<uint64_t>{2, 1}));
  EXPECT_TRUE(rested);
  EXPECT_EQ(done_[1]->prompt.size(), 3u * 20'000);
}

TEST_F(EncodePoolChatTest, StopsRenderingWhatNobodyWaitsFor) {
  auto request = Make(1, 1, "slow");
  ChatPrompt& chat = std::get<ChatPrompt>(request->request.prompt);
  // Of many tools: else it would be rendered in the other lane.
  chat.input.tools =
      jinja::Value::MakeList(jinja::Value::List(2000, jinja::Value::MakeMap(jinja::Map())));
  const std::shared_ptr<TokenStream> stream = request->stream;
  std::atomic<int> rests = 0;
  at_rest = [&] {
    ++rests;
    stream->Cancel();
  };
  pool_->Push(std::move(request));
  ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(stream->Read().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(rests, 1);
}

// Scenario: its key is removed between two slices of its rendering, while nothing waits.
TEST_F(EncodePoolChatTest, EndsAConversationOfATenantBeforeItIsTokenized) {
  std::atomic<int> tokenized = 0, rests = 0;
  tokenizer_.before_encode = [&](std::string_view) { ++tokenized; };
  const absl::Status reason = absl::UnauthenticatedError("removed");
  at_rest = [&] {
    if (++rests == 1) {
      EXPECT_EQ(pool_->EndWaiting({"ended"}, /*before=*/2, reason), 0);
    }
  };
  auto request = Make(1, 20'000, "abc");
  request->request.tenant = "ended";
  const std::shared_ptr<TokenStream> stream = request->stream;
  pool_->Push(std::move(request));
  ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
  EXPECT_EQ(stream->Read().status, reason);
  EXPECT_EQ(ledger_->queued_requests(), 0);
  EXPECT_EQ(tokenized, 0);
  EXPECT_EQ(rests, 1) << "slices of it that were begun behind its end";
  // One that comes later is another's, or the key is there again.
  request = Make(2, 2'000, "abc");
  request->request.tenant = "ended";
  pool_->Push(std::move(request));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2});
}

// Scenario: one thread is in another's text, a second one waits for its turn with the conversation.
TEST_F(EncodePoolChatTest, EndsAConversationOfATenantThatWaitsForItsTurn) {
  std::atomic<int> in_work = 0;
  std::atomic<bool> go = false;
  tokenizer_.before_encode = [&](std::string_view) {
    ++in_work;
    EXPECT_TRUE(Eventually([&] { return go.load(); }));
  };
  const absl::Status reason = absl::UnauthenticatedError("removed");
  auto first = Make(1, 1'100, "abc"), second = Make(2, 1'100, "abc");
  const std::shared_ptr<TokenStream> stream = second->stream;
  first->request.tenant = "stays";
  second->request.tenant = "ended";
  pool_->Push(std::move(first));
  ASSERT_TRUE(Eventually([&] { return in_work == 1; }));
  pool_->Push(std::move(second));
  EXPECT_TRUE(Eventually([&] { return ledger_->queued_requests() == 2; }));
  pool_->EndWaiting({"ended"}, /*before=*/3, reason);
  EXPECT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(20)))
      << "while the other is in work";
  go = true;
  EXPECT_EQ(stream->Read().status, reason);
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{1});
  EXPECT_EQ(in_work, 1);
}

TEST_F(EncodePoolChatTest, APromptWithoutMemoryEndsAndOthersGoOn) {
  tokenizer_.before_encode = [&](std::string_view text) {
    if (text == "aaa") throw std::bad_alloc();
  };
  auto refused = Make(1, 1, "aaa");
  const std::shared_ptr<TokenStream> stream = refused->stream;
  pool_->Push(std::move(refused));
  pool_->Push(Make(2, 1, "abc"));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2});
  ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  const absl::Status status = stream->Read().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("memory for the prompt"));
}

// Whichever allocation is refused as it is put in line, which is the same for a lane's thread that
// hands it on to the other.
TEST_F(EncodePoolChatTest, AnyAllocationRefusedInLineEndsOnePromptAlone) {
  int64_t refused = 0;
  for (bool was_refused = true; was_refused; refused += was_refused) {
    auto request = Make(1, 1, "abc");
    request->request.tenant = "a tenant with a name that has to be allocated";
    const std::shared_ptr<TokenStream> stream = request->stream;
    HeapCountsOfThread().until_refused = refused;
    pool_->Push(std::move(request));
    was_refused = HeapCountsOfThread().until_refused < 0;
    HeapCountsOfThread().until_refused = -1;
    if (!was_refused) break;
    ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
    EXPECT_EQ(stream->Read().status.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_EQ(ledger_->queued_requests(), 0);
  }
  EXPECT_GT(refused, 4);
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{1});
}

// Scenario: seven of the eight threads for long texts have some that last, and one takes all
// others. Each second of these finds no memory, whichever allocation is refused before its turn.
TEST_F(EncodePoolChatTest, ALongPromptWithoutMemoryToBeginWithEndsAndOthersGoOn) {
  constexpr int kBusy = EncodePool::kLongTextThreads - 1;
  constexpr size_t kLong = EncodePool::kLongTextBytes + 1;
  std::atomic<int> begun = 0;
  std::atomic<bool> go = false;
  std::atomic<int64_t> until_refused = -1;  // where the next text is done
  tokenizer_.paced_encode = [&](EncodePace* pace) {
    if (++begun > kBusy) return;
    while (!go && !pace->stopped()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pace->Did(kLong);
    }
  };
  at_end = [&] { HeapCountsOfThread().until_refused = until_refused.exchange(-1); };
  uint64_t number = 0;
  const auto push = [&](size_t messages, size_t bytes) {
    auto request = Make(++number, messages, std::string(bytes, 'a'));
    request->request.tenant =
        "a tenant with a name that has to be allocated, " + std::to_string(number);
    request->timeout_s = 60;
    request->deadline = clock_.Now() + std::chrono::seconds(60);
    const std::shared_ptr<TokenStream> stream = request->stream;
    pool_->Push(std::move(request));
    return stream;
  };
  const auto done = [&] {
    std::lock_guard lock(mutex_);
    return std::exchange(done_, {}).size();
  };
  const auto is_refused = [&](int64_t allocations, size_t messages, size_t bytes) {
    until_refused = allocations;
    push(1, kLong);
    EXPECT_TRUE(Eventually([&] { return done() == 1; })) << allocations;
    const std::shared_ptr<TokenStream> stream = push(messages, bytes);
    const auto ended = [&] { return stream->WaitUntil(std::chrono::steady_clock::now()); };
    EXPECT_TRUE(Eventually([&] { return ended() || done() == 1; })) << allocations;
    if (!ended()) return false;
    EXPECT_EQ(stream->Read().status.code(), absl::StatusCode::kResourceExhausted) << allocations;
    return true;
  };
  for (int i = 1; i <= kBusy; ++i) {
    push(1, kLong);
    EXPECT_TRUE(Eventually([&] { return begun == i; }));
  }
  // A text, and a conversation that is rendered in slices.
  for (const auto& [messages, bytes] :
       {std::pair(size_t{1}, kLong), std::pair(size_t{1100}, size_t{1})}) {
    int64_t refused = 0;
    while (is_refused(refused, messages, bytes)) ++refused;
    EXPECT_GT(refused, 3);
  }
  go = true;
  size_t left = kBusy;
  EXPECT_TRUE(Eventually([&] { return (left -= done()) == 0; }));
}

}  // namespace
}  // namespace refrain::engine
