// Conversations through the whole engine, on a model of random weights at temperature 1: its
// answers are arbitrary bytes, mostly no canonical encoding and often no UTF-8.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::ChatPrompt;
using engine::Engine;
using engine::Request;
using engine::TokenId;
using engine::jinja::Map;
using engine::jinja::Value;

// What a client learns of one choice.
struct Answer {
  std::string text;
  std::vector<TokenId> ids;     // wholly shown
  std::vector<TokenId> prompt;  // with echo
  engine::Usage usage;
};

Value Message(const std::string& role, const std::string& content) {
  Map message;
  message.Set("role", Value::String(role));
  message.Set("content", Value::String(content));
  return Value::MakeMap(std::move(message));
}

class MultiTurnTest : public ::testing::Test {
 protected:
  void Start(bool reproducible) {
    TinyModelOptions model;
    model.config.max_context_tokens = 4096;
    const auto path = WriteTinyGguf(model, directory_.path());
    ASSERT_TRUE(path.ok()) << path.status();
    engine::EngineOptions options;
    options.model.path = *path;
    options.kv_cache.memory_bytes = 64 << 20;
    options.reproducible = reproducible;
    auto made = engine::CreateEngine(options);
    ASSERT_TRUE(made.ok()) << made.status();
    engine_ = *std::move(made);
  }

  Answer Ask(const Request& request, int32_t choice = 0) {
    Answer answer;
    auto stream = engine_->Submit(request);
    EXPECT_TRUE(stream.ok()) << stream.status();
    if (!stream.ok()) return answer;
    engine::Detokenizer detokenizer(&engine_->tokenizer());
    const engine::StreamBatch all = ReadBatches(**stream);
    EXPECT_TRUE(all.status.ok()) << all.status;
    answer.usage = all.usage;
    for (const engine::TokenEvent& event : all.tokens) {
      if (event.choice != choice) continue;
      if (event.from_prompt) {
        answer.prompt.push_back(event.token);
      } else if (event.shown_bytes.has_value()) {
        answer.text +=
            detokenizer.AppendBytes(engine_->tokenizer()
                                        .TokenBytes(event.token)
                                        .substr(0, static_cast<size_t>(*event.shown_bytes)));
      } else {
        answer.text += detokenizer.Append(event.token);
        answer.ids.push_back(event.token);
      }
    }
    answer.text += detokenizer.Flush();
    return answer;
  }

  static Request Chat(const Value::List& messages, int32_t max_tokens) {
    Request request;
    ChatPrompt prompt;
    prompt.input.messages = Value::MakeList(messages);
    request.prompt = std::move(prompt);
    request.stop.max_tokens = max_tokens;
    // A control token in an answer has no text: what follows it is encoded anew.
    request.sampling.logit_bias = {{TokenId{1}, -100.0f}};
    return request;
  }

  // The ids of a conversation as its next request has them.
  std::vector<TokenId> PromptIds(const Value::List& messages) {
    Request request = Chat(messages, 0);
    request.echo = true;
    return Ask(request).prompt;
  }

  // How much the prompts of 20 turns began with: of the prompt before and its answer, of the
  // answer.
  struct Met {
    size_t history = 0, of_history = 0, answers = 0, of_answers = 0, cached = 0;
    Value::List messages;              // all but the last answer
    std::vector<TokenId> last_prompt;  // their ids
  };
  Met TalkForTwentyTurns() {
    Met met;
    Value::List messages;
    std::vector<TokenId> known;
    size_t last_answer = 0;
    for (int turn = 0; turn < 20; ++turn) {
      messages.push_back(Message("user", "And " + std::to_string(turn) + "?"));
      Request request = Chat(messages, 24);
      if (turn % 3 == 1) request.stop.stop = {"a", "e", "i", "o", "t", "s", "n"};
      const Answer answer = Ask(request);
      const std::vector<TokenId> prompt = PromptIds(messages);
      EXPECT_EQ(prompt.size(), static_cast<size_t>(answer.usage.prompt_tokens));
      const size_t common = static_cast<size_t>(
          std::mismatch(known.begin(), known.end(), prompt.begin(), prompt.end()).first -
          known.begin());
      met.history += common;
      met.cached += static_cast<size_t>(answer.usage.cached_tokens);
      met.of_history += known.size();
      met.answers += common - std::min(common, known.size() - last_answer);
      met.of_answers += last_answer;
      known = prompt;
      known.insert(known.end(), answer.ids.begin(), answer.ids.end());
      last_answer = answer.ids.size();
      met.messages = messages;
      met.last_prompt = prompt;
      messages.push_back(Message("assistant", answer.text));
    }
    EXPECT_GT(met.of_answers, 100u);
    return met;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(MultiTurnTest, EachTurnBeginsWithTheIdsOfTheTurnBefore) {
  Start(/*reproducible=*/false);
  const Met met = TalkForTwentyTurns();
  EXPECT_GE(met.history, met.of_history * 95 / 100);
  EXPECT_GE(met.answers, met.of_answers * 95 / 100);
  EXPECT_GE(met.cached, met.of_history * 95 / 100);
  // Which are not the ids that the texts alone would have.
  Start(/*reproducible=*/false);
  EXPECT_NE(PromptIds(met.messages), met.last_prompt);
}

// What a request is told must not hang on what was asked before.
TEST_F(MultiTurnTest, UnderReproducibleAPromptHasItsOwnIds) {
  Start(/*reproducible=*/true);
  const Met met = TalkForTwentyTurns();
  Start(/*reproducible=*/true);  // one that was asked nothing before
  EXPECT_EQ(PromptIds(met.messages), met.last_prompt);
}

TEST_F(MultiTurnTest, ContinuesTheChoiceThatTheClientTook) {
  Start(/*reproducible=*/false);
  Value::List messages = {Message("user", "Hi")};
  const std::vector<TokenId> prompt = PromptIds(messages);
  Request request = Chat(messages, 20);
  request.n = 4;
  request.sampling.seed = 3;
  for (int32_t choice = 0; choice < 4; ++choice) {
    const Answer answer = Ask(request, choice);
    messages.push_back(Message("assistant", answer.text));
    messages.push_back(Message("user", "More"));
    std::vector<TokenId> expected = prompt;
    expected.insert(expected.end(), answer.ids.begin(), answer.ids.end());
    std::vector<TokenId> next = PromptIds(messages);
    next.resize(std::min(next.size(), expected.size()));
    EXPECT_EQ(next, expected);
    messages.resize(1);
  }
}

// The text goes on inside of the last message: no end of turn, no generation prompt.
TEST_F(MultiTurnTest, ContinuesAFinalMessage) {
  Start(/*reproducible=*/false);
  const Value::List messages = {Message("user", "Hi"), Message("assistant", "The sky is")};
  Request request = Chat(messages, 0);
  request.echo = true;
  std::get<ChatPrompt>(request.prompt).input.add_generation_prompt = false;
  std::get<ChatPrompt>(request.prompt).continue_final_message = true;
  const Answer answer = Ask(request);
  const std::vector<TokenId> expected = *engine_->tokenizer().Encode(
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nThe sky is",
      {.parse_special = true, .add_bos = false});
  EXPECT_EQ(answer.prompt, expected);

  // What continues it belongs to the message when the conversation goes on.
  request = Chat(messages, 20);
  std::get<ChatPrompt>(request.prompt).input.add_generation_prompt = false;
  std::get<ChatPrompt>(request.prompt).continue_final_message = true;
  const Answer rest = Ask(request);
  std::vector<TokenId> known = expected;
  known.insert(known.end(), rest.ids.begin(), rest.ids.end());
  std::vector<TokenId> next = PromptIds(
      {messages[0], Message("assistant", "The sky is" + rest.text), Message("user", "More")});
  next.resize(std::min(next.size(), known.size()));
  EXPECT_EQ(next, known);
}

// Where nothing is said yet it goes on as behind the generation prompt.
TEST_F(MultiTurnTest, ContinuesAMessageThatSaysNothingYet) {
  Start(/*reproducible=*/false);
  const std::string begin = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  for (const std::string text : {"", " \n"}) {
    Request request = Chat({Message("user", "Hi"), Message("assistant", text)}, 0);
    request.echo = true;
    std::get<ChatPrompt>(request.prompt).input.add_generation_prompt = false;
    std::get<ChatPrompt>(request.prompt).continue_final_message = true;
    EXPECT_EQ(Ask(request).prompt,
              *engine_->tokenizer().Encode(begin + text, {.parse_special = true, .add_bos = false}))
        << '"' << text << '"';
  }
}

TEST_F(MultiTurnTest, RefusesToContinueAMessageWithoutText) {
  Start(/*reproducible=*/false);
  Map silent;
  silent.Set("role", Value::String("assistant"));
  silent.Set("content", Value::None());
  Request request = Chat({Message("user", "Hi"), Value::MakeMap(std::move(silent))}, 1);
  std::get<ChatPrompt>(request.prompt).input.add_generation_prompt = false;
  std::get<ChatPrompt>(request.prompt).continue_final_message = true;
  auto stream = engine_->Submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const absl::Status status = ReadBatches(**stream).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("no text"), std::string::npos);
}

// Ids stay as they are: not encoded again, nothing put before them, control tokens allowed.
TEST_F(MultiTurnTest, TakesAPromptOfIdsAsItIs) {
  Start(/*reproducible=*/false);
  const std::vector<TokenId> ids = {TokenId{1}, TokenId{80}, TokenId{80}, TokenId{2}, TokenId{5}};
  Request request;
  request.prompt = engine::TokenPrompt{ids};
  request.echo = true;
  request.stop.max_tokens = 3;
  request.stop.ignore_eos = true;
  const Answer answer = Ask(request);
  EXPECT_EQ(answer.prompt, ids);
  EXPECT_EQ(answer.ids.size(), 3u);
  EXPECT_EQ(answer.usage.prompt_tokens, 5);
}

}  // namespace
}  // namespace refrain::testing
