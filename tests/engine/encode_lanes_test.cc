// Which texts the encode pool's short lane tokenizes, on a real tokenizer and with remembered
// turns.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/encode_pool.h"
#include "engine/text/chat_template.h"
#include "engine/turn_memory.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/fake_clock.h"

namespace refrain::engine {
namespace {

using jinja::Map;
using jinja::Value;

// Another tokenizer, of which it knows how many bytes it tokenized at most in one call, by thread.
class WatchedTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view utf8,
                                              const EncodeOptions& options) const override {
    const size_t bytes = real_->BytesToEncode(utf8, options);
    auto ids = real_->Encode(utf8, options);
    if (!ids.ok()) return ids;
    std::lock_guard lock(mutex_);
    size_t& most = most_bytes_[std::this_thread::get_id()];
    most = std::max(most, bytes);
    return ids;
  }
  std::vector<ControlToken> FindControlTokens(std::string_view utf8,
                                              const EncodeOptions& options) const override {
    return real_->FindControlTokens(utf8, options);
  }
  size_t BytesToEncode(std::string_view utf8, const EncodeOptions& options) const override {
    return real_->BytesToEncode(utf8, options);
  }
  std::string_view TokenBytes(TokenId id) const override { return real_->TokenBytes(id); }
  bool IsControl(TokenId id) const override { return real_->IsControl(id); }
  bool IsEndOfGeneration(TokenId id) const override { return real_->IsEndOfGeneration(id); }
  size_t vocab_size() const override { return real_->vocab_size(); }
  std::optional<TokenId> bos() const override { return real_->bos(); }
  std::optional<TokenId> eos() const override { return real_->eos(); }
  bool adds_bos() const override { return real_->adds_bos(); }
  bool adds_space_prefix() const override { return real_->adds_space_prefix(); }
  std::optional<TokenId> FindSpecial(std::string_view text) const override {
    return real_->FindSpecial(text);
  }

  std::map<std::thread::id, size_t> most_bytes() const {
    std::lock_guard lock(mutex_);
    return most_bytes_;
  }
  void Forget() const {
    std::lock_guard lock(mutex_);
    most_bytes_.clear();
  }

 private:
  const std::unique_ptr<Tokenizer> real_ = SmolLm2Tokenizer();
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, size_t> most_bytes_;
};

class EncodeLanesTest : public ::testing::Test {
 protected:
  EncodeLanesTest()
      : encoder_(&tokenizer_, template_.get(),
                 {.max_context_tokens = 1 << 22, .kv_capacity_tokens = 1 << 22}, &turns_),
        pool_(
            &encoder_, &clock_, 1,
            [this](std::unique_ptr<EncodedRequest> request) {
              std::lock_guard lock(mutex_);
              done_ = std::move(request);
              changed_.notify_all();
            },
            [] { return false; }) {
    tokenizer_.Forget();  // what the encoder has asked while it was made
  }

  // Messages of users and assistants in turns.
  std::unique_ptr<EncodedRequest> Encode(const std::vector<std::string>& contents) {
    Value::List messages;
    for (const std::string& content : contents) {
      Map message;
      message.Set("role", Value::String(messages.size() % 2 == 0 ? "user" : "assistant"));
      message.Set("content", Value::String(content));
      messages.push_back(Value::MakeMap(std::move(message)));
    }
    auto request = std::make_unique<EncodedRequest>();
    request->ticket = *ledger_->Enter("");
    request->stream = std::make_shared<TokenStream>();
    ChatPrompt chat;
    chat.input.messages = Value::MakeList(std::move(messages));
    request->request.prompt = std::move(chat);
    pool_.Push(std::move(request));
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(5), [&] { return done_ != nullptr; }));
    return std::move(done_);
  }

  const WatchedTokenizer tokenizer_;
  const std::unique_ptr<ChatTemplate> template_ = *ChatTemplate::Create(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "", "");
  TurnMemory turns_;
  testing::FakeClock clock_;
  std::shared_ptr<AdmissionLedger> ledger_ = std::make_shared<AdmissionLedger>(100, 1 << 30);
  PromptEncoder encoder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<EncodedRequest> done_;
  EncodePool pool_;
};

// An answer that was generated since leaves most of a long text to be tokenized behind it.
TEST_F(EncodeLanesTest, ALongTextThatAnAnswerCutsIsTokenizedInTheLongLane) {
  Encode({"hi"});
  ASSERT_EQ(tokenizer_.most_bytes().size(), 1u);
  const std::thread::id short_lane = tokenizer_.most_bytes().begin()->first;
  const std::vector<std::string> conversation = {"hi", Repeat("The river rose. ", 1 << 20), "and"};
  Encode(conversation);
  const auto question = Encode({"hi"});
  const std::vector<TokenId> answer = *tokenizer_.Encode("The river", {});
  turns_.Remember(*question->turn, answer);
  const auto again = Encode(conversation);
  ASSERT_GT(again->prompt.size(), question->prompt.size());
  EXPECT_TRUE(std::ranges::equal(
      std::span(again->prompt).subspan(question->prompt.size(), answer.size()), answer));
  EXPECT_LE(tokenizer_.most_bytes().at(short_lane), EncodePool::kLongTextBytes);
}

}  // namespace
}  // namespace refrain::engine
