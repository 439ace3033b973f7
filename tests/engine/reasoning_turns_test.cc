// Conversations with a model that thinks: clients send the thought back apart from the answer, or
// not at all, and what was generated is met in the cache as far as the template shows it again.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/prompt_encoder.h"
#include "engine/text/chat_template.h"
#include "engine/turn_memory.h"
#include "server/openai/reasoning_parser.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

using jinja::Map;
using jinja::Value;

// As Qwen3's: thoughts behind the last question are shown again, those before it are not. With
// `opens`, as Qwen3-Thinking's, the prompt opens them.
constexpr char kTemplate[] =
    "{%- set ns = namespace(last=-1) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{%- endfor %}"
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last and m.reasoning_content %}"
    "{{- '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}"
    "{%- endif %}"
    "{{- m.content.split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{{- '<|im_start|>assistant\n' }}{% if opens %}{{ '<think>\n' }}{% endif %}";

struct Message {
  const char* role;
  std::string content;
  std::string reasoning = "";
};

class ReasoningTurnsTest : public ::testing::TestWithParam<bool> {
 protected:
  EncodedRequest Encode(const std::vector<Message>& messages) {
    Value::List list;
    for (const Message& message : messages) {
      Map map;
      map.Set("role", Value::String(message.role));
      map.Set("content", Value::String(message.content));
      if (!message.reasoning.empty()) {
        map.Set("reasoning_content", Value::String(message.reasoning));
      }
      list.push_back(Value::MakeMap(std::move(map)));
    }
    ChatPrompt chat;
    chat.input.messages = Value::MakeList(std::move(list));
    Map variables;
    variables.Set("opens", Value::Bool(opens_));
    chat.input.extra = Value::MakeMap(std::move(variables));
    EncodedRequest encoded;
    encoded.stream = std::make_shared<TokenStream>();
    encoded.request.prompt = std::move(chat);
    const auto text = encoder_.Render(&encoded);
    EXPECT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(encoder_.Tokenize(*text, &encoded), absl::OkStatus());
    own_ = *tokenizer_->Encode(
        (*text)->text,
        {.parse_special = true, .add_bos = false, .plain_spans = (*text)->plain_spans});
    return encoded;
  }

  // Byte by byte, as no encoder does.
  std::vector<TokenId> Spelled(std::string_view text) const {
    std::vector<TokenId> ids;
    for (const char byte : text) {
      for (const int id : EncodeOrFail(*tokenizer_, std::string(1, byte), {.add_bos = false})) {
        ids.push_back(TokenId{id});
      }
    }
    return ids;
  }

  // As clients see it.
  server::openai::ReasoningParser::Output Shown(const std::string& generated) const {
    server::openai::ReasoningParser parser(opens_ ? ReasoningStart::kInside
                                                  : ReasoningStart::kBefore);
    auto shown = parser.Add(generated);
    const auto rest = parser.Finish();
    return {shown.reasoning + rest.reasoning, shown.answer + rest.answer};
  }

  static size_t CommonPrefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                               a.begin());
  }

  const bool opens_ = GetParam();
  const std::string generated_ =
      std::string(opens_ ? "" : "<think>\n") +
      "  Uncommonly hard.\nLet me see. \n</think>\n\nI look it up: <tool_call>";
  std::unique_ptr<Tokenizer> tokenizer_ = SmolLm2Tokenizer();
  std::unique_ptr<ChatTemplate> template_ = *ChatTemplate::Create(kTemplate, "", "");
  TurnMemory memory_;
  PromptEncoder encoder_{tokenizer_.get(),
                         template_.get(),
                         {.max_context_tokens = 1 << 20, .kv_capacity_tokens = 1 << 20},
                         &memory_};
  std::vector<TokenId> own_;  // the last prompt's own encoding
};

TEST_P(ReasoningTurnsTest, AThoughtThatIsShownAgainIsMetWithItsAnswer) {
  const std::vector<Message> question = {{"user", "How far is it?"}};
  const EncodedRequest first = Encode(question);
  EXPECT_EQ(first.stream->Read().reasoning,
            opens_ ? ReasoningStart::kInside : ReasoningStart::kBefore);
  std::vector<TokenId> expected = first.prompt;
  const std::vector<TokenId> answer = Spelled(generated_);
  memory_.Remember(*first.turn, answer);
  expected.insert(expected.end(), answer.begin(), answer.end());

  const auto shown = Shown(generated_);
  ASSERT_NE(shown.reasoning, "");
  std::vector<Message> messages = question;
  messages.push_back({"assistant", shown.answer, shown.reasoning});
  messages.push_back({"tool", "42 km"});
  const EncodedRequest second = Encode(messages);
  EXPECT_EQ(CommonPrefix(expected, second.prompt), expected.size());
  EXPECT_LT(CommonPrefix(expected, own_), expected.size()) << "the encoder's own ids prove nothing";
}

// The template shows the answer without what was thought: no id of the thought may come in.
TEST_P(ReasoningTurnsTest, AThoughtThatIsNotShownAgainIsNotMet) {
  const std::vector<Message> question = {{"user", "How far is it?"}};
  const EncodedRequest first = Encode(question);
  memory_.Remember(*first.turn, Spelled(generated_));
  const auto shown = Shown(generated_);
  for (const std::string& reasoning : {shown.reasoning, std::string()}) {
    std::vector<Message> messages = question;
    messages.push_back({"assistant", shown.answer, reasoning});
    messages.push_back({"user", "And back?"});
    EXPECT_EQ(Encode(messages).prompt, own_);
  }
  const std::vector<Message> forgotten = {
      question[0], {"assistant", shown.answer}, {"tool", "42 km"}};
  EXPECT_EQ(Encode(forgotten).prompt, own_);
}

INSTANTIATE_TEST_SUITE_P(PromptOpensThoughts, ReasoningTurnsTest, ::testing::Bool());

}  // namespace
}  // namespace refrain::engine
