#include "engine/chat_prompt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>

namespace refrain::engine {
namespace {

ChatPrompt Continuing(jinja::Value::List messages) {
  ChatPrompt prompt;
  prompt.input.messages = jinja::Value::MakeList(std::move(messages));
  prompt.continue_final_message = true;
  return prompt;
}

jinja::Value Message(const char* role, jinja::Value content) {
  jinja::Map message;
  message.Set("role", jinja::Value::String(role));
  message.Set("content", std::move(content));
  return jinja::Value::MakeMap(std::move(message));
}

// The text of a user's "hi" and the beginning of an answer, or why that cannot be continued.
std::string Continued(const ChatTemplate& chat_template, const jinja::Value& content) {
  const auto chat = RenderChatPrompt(
      chat_template,
      Continuing({Message("user", jinja::Value::String("hi")), Message("assistant", content)}));
  if (!chat.ok()) return std::string(chat.status().message());
  for (const TextSpan& span : chat->content_spans) EXPECT_LE(span.end_byte, chat->text.size());
  return chat->text;
}

// As where the text was begun: nothing of the template's that ends the message.
TEST(ChatPromptTest, ContinuesAMessageThatSaysNothingYet) {
  const auto chat_template = ChatTemplate::Create(
      "{% for m in messages %}<{{ m.role }}>{{ m.content.lstrip(' ') }}</{{ m.role }}>{% endfor %}",
      "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto rendered = [&](const jinja::Value& content) {
    return Continued(**chat_template, content);
  };
  EXPECT_EQ(rendered(jinja::Value::String("so")), "<user>hi</user><assistant>so");
  EXPECT_EQ(rendered(jinja::Value::String("")), "<user>hi</user><assistant>");
  EXPECT_EQ(rendered(jinja::Value::String(" \n")), "<user>hi</user><assistant>\n");
  EXPECT_EQ(rendered(jinja::Value::None()),
            "continue_final_message: the last message has no text that could be continued");
}

// As templates of models that think do: what the tags were is text of theirs.
TEST(ChatPromptTest, ContinuesAMessageThatTheTemplateHasTakenApart) {
  const auto chat_template = ChatTemplate::Create(
      "{% for m in messages %}<{{ m.role }}>"
      "{% if m.role == 'assistant' %}{% set parts = m.content.split('</think>') %}"
      "<think>\n{{ parts[0].split('<think>')[-1].strip('\n') if parts|length > 1 }}\n</think>\n\n"
      "{{ parts[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}</{{ m.role }}>\n{% endfor "
      "%}",
      "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto rendered = [&](std::string content) {
    return Continued(**chat_template, jinja::Value::String(std::move(content)));
  };
  const std::string begin = "<user>hi</user>\n<assistant>";
  for (const char* const content :
       {"<think>\n\n</think>\n\n", "<think>\n\n</think>", "<think>\nLet me see.\n</think>\n\n",
        "<think>\nLet me see.\n</think>\n", "<think>\nSo.\n</think>\n\nThe answer"}) {
    EXPECT_EQ(rendered(content), begin + content);
  }
  // White space that the template does not show.
  EXPECT_EQ(rendered("\n<think>\nSo.\n</think>\n \n"), begin + "<think>\nSo.\n</think>");
  EXPECT_EQ(rendered("The answer"), begin + "<think>\n\n</think>\n\nThe answer");
  EXPECT_EQ(rendered("<think>\nLet"), begin + "<think>\n\n</think>\n\n<think>\nLet");
  // Shown otherwise than it was sent: nothing tells where it ends.
  EXPECT_EQ(rendered("<think>So.</think>Yes"), begin + "<think>\nSo.\n</think>\n\nYes");
  EXPECT_EQ(rendered("<think>So.</think>"),
            "continue_final_message: the chat template does not end with the last message's text");
}

// Its text is looked for in time in proportion: half a minute otherwise.
TEST(ChatPromptTest, LooksForALongMessageOnce) {
  const auto chat_template = ChatTemplate::Create(
      "{% for m in messages %}{{ m.content | tojson }}{% endfor %}{{ 'a' * 1600000 }}", "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = std::string(800'000, 'a') + "b\"";
  EXPECT_EQ(Continued(**chat_template, jinja::Value::String(text)),
            "continue_final_message: the chat template does not end with the last message's text");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// What says the same elsewhere is not the last message.
TEST(ChatPromptTest, ContinuesNoTextThatStandsBeforeAnothers) {
  const auto chat_template = ChatTemplate::Create(
      "Answer: yes\n{% for m in messages if m.role == 'user' %}"
      "<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}",
      "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  EXPECT_EQ(Continued(**chat_template, jinja::Value::String("yes")),
            "continue_final_message: the chat template does not end with the last message's text");
}

// The template's own text holds the content in many places, overlapping ones too: it is cut behind
// the last.
TEST(ChatPromptTest, CutsWhereTheContentStandsLast) {
  std::mt19937 random(5);
  const auto letters = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& letter : text) letter = random() % 3 == 0 ? 'b' : 'a';
    return text;
  };
  int found = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = letters(24), content = letters(6);
    const auto chat_template = ChatTemplate::Create(text, "", "");
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    const auto chat = RenderChatPrompt(
        **chat_template, Continuing({Message("assistant", jinja::Value::String(content))}));
    const size_t last = text.rfind(content);
    ASSERT_EQ(chat.ok(), last != std::string::npos) << content << " in " << text;
    if (!chat.ok()) continue;
    ASSERT_EQ(chat->text, text.substr(0, last + content.size())) << content << " in " << text;
    ++found;
  }
  EXPECT_GT(found, 1000);
  EXPECT_LT(found, 2900);
}

// As Qwen3's template and those of DeepSeek's distillates.
TEST(ChatPromptTest, TellsWhetherTheAnswerBeginsInsideOfAThought) {
  const auto may_think = ChatTemplate::Create(
      "{% for m in messages %}{{ m.role }}:{{ m.content.split('</think>')[-1] }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% if enable_thinking is defined and "
      "not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
      "", "");
  const auto thinks = ChatTemplate::Create(
      "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
      "{% if add_generation_prompt %}<think>\n{% endif %}",
      "", "");
  ASSERT_TRUE(may_think.ok() && thinks.ok());
  ReasoningStart by_tags = ReasoningStart::kBehind;
  const auto start = [&](const ChatTemplate& chat_template, const char* said, bool add_prompt,
                         std::optional<bool> thinking = std::nullopt) {
    ChatPrompt prompt;
    prompt.input.messages = jinja::Value::MakeList({Message("user", jinja::Value::String(said))});
    prompt.input.add_generation_prompt = add_prompt;
    if (thinking.has_value()) {
      jinja::Map variables;
      variables.Set("enable_thinking", jinja::Value::Bool(*thinking));
      prompt.input.extra = jinja::Value::MakeMap(std::move(variables));
    }
    const auto rendered = RenderChatPrompt(chat_template, std::move(prompt));
    by_tags = rendered->by_tags;
    return rendered->reasoning;
  };
  EXPECT_EQ(start(**may_think, "hi", true), ReasoningStart::kBefore);
  EXPECT_EQ(start(**may_think, "hi", true, true), ReasoningStart::kBefore);
  EXPECT_EQ(start(**may_think, "hi", true, false), ReasoningStart::kBehind);
  EXPECT_EQ(by_tags, ReasoningStart::kBehind);
  EXPECT_EQ(start(**thinks, "hi", true), ReasoningStart::kInside);
  EXPECT_EQ(by_tags, ReasoningStart::kInside);
  EXPECT_EQ(start(**thinks, "hi", false), ReasoningStart::kBefore);
  // No tag of a message is the template's.
  EXPECT_EQ(start(**thinks, "<think>", false), ReasoningStart::kBefore);
  const auto no_thoughts =
      ChatTemplate::Create("{{ messages[0].content }}<think>", "", "");  // closes none
  EXPECT_EQ(start(**no_thoughts, "hi", true), ReasoningStart::kBehind);
  EXPECT_EQ(by_tags, ReasoningStart::kBesideTag);
}

// By the words that are there already, or where there are none as the template has them.
TEST(ChatPromptTest, TellsWhetherAContinuedMessageEndsInsideOfAThought) {
  const auto chat_template = ChatTemplate::Create(
      "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' and '</think>' not in "
      "m.content and thinks %}<think>\n{% endif %}{{ m.content }}\n{% endfor %}",
      "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto start = [&](const char* begun, bool thinks = false) {
    ChatPrompt prompt = Continuing({Message("user", jinja::Value::String("</think>")),
                                    Message("assistant", jinja::Value::String(begun))});
    jinja::Map variables;
    variables.Set("thinks", jinja::Value::Bool(thinks));
    prompt.input.extra = jinja::Value::MakeMap(std::move(variables));
    const auto rendered = RenderChatPrompt(**chat_template, std::move(prompt));
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    return rendered->reasoning;
  };
  EXPECT_EQ(start("The answer"), ReasoningStart::kBehind);
  EXPECT_EQ(start("<think>\nLet me"), ReasoningStart::kAmid);
  EXPECT_EQ(start("<think>\nLet </thin"), ReasoningStart(ReasoningStart::kAmid, 6));
  EXPECT_EQ(start("<think>\n"), ReasoningStart::kInside);
  EXPECT_EQ(start("<think>\nSo.\n</think>\n\n"), ReasoningStart::kBehind);
  EXPECT_EQ(start(""), ReasoningStart::kBefore);
  EXPECT_EQ(start("", true), ReasoningStart::kInside);
  // The template opens the thought in front of them, and may not.
  EXPECT_EQ(start("Let me", true), ReasoningStart::kAmid);
  EXPECT_EQ(start("So.</think> The answer", true), ReasoningStart::kBehind);
}

}  // namespace
}  // namespace refrain::engine
