// Expected texts: llama_chat_apply_template of llama.cpp, with the names.

#include "engine/text/known_templates.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/json.h"

namespace refrain::engine {
namespace {

std::string Rendered(const std::string& name, bool add_generation_prompt = true) {
  const auto source = KnownChatTemplate(name);
  if (!source.has_value()) return "no such template";
  const auto chat = ChatTemplate::Create(*source, "<s>", "</s>");
  EXPECT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE((*chat)->shows_messages());
  EXPECT_EQ((*chat)->tool_format(), ToolFormat::kNone);
  const auto rendered = (*chat)->Render(
      {.messages = *jinja::ParseJsonValue(
           R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
               {"role": "assistant", "content": "\n Yes? "}, {"role": "user", "content": "No."}])"),
       .add_generation_prompt = add_generation_prompt});
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered->text;
}

TEST(KnownTemplatesTest, RenderAsLlamaCpps) {
  EXPECT_EQ(Rendered("chatml"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n\n Yes? <|im_end|>\n<|im_start|>user\nNo.<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_TRUE(Rendered("chatml", false).ends_with("user\nNo.<|im_end|>\n"));
  EXPECT_EQ(Rendered("mistral-v1"),
            " [INST] Be brief.\n\nHi [/INST] \n Yes? </s> [INST] No. [/INST]");
  EXPECT_EQ(Rendered("mistral-v3"), "[INST] Be brief.\n\nHi[/INST] Yes?</s>[INST] No.[/INST]");
  EXPECT_EQ(Rendered("mistral-v3-tekken"),
            "[INST]Be brief.\n\nHi[/INST]\n Yes? </s>[INST]No.[/INST]");
  EXPECT_EQ(Rendered("mistral-v7"),
            "[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hi[/INST] \n Yes? </s>"
            "[INST] No.[/INST]");
  EXPECT_EQ(Rendered("mistral-v7-tekken"),
            "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]\n Yes? </s>[INST]No.[/INST]");
}

TEST(KnownTemplatesTest, OtherNamesStandForNone) {
  for (const char* name : {"", "mistral", "mistral-v13", "{{ messages }}"}) {
    EXPECT_FALSE(KnownChatTemplate(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace refrain::engine
