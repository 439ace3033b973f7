// Chat templates and the Jinja engine against jinja2 in the environment of transformers.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/template.h"
#include "engine/text/tool_format.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

using jinja::ParseJsonValue;
using jinja::Value;

// The day at which the golden values froze strftime_now.
std::tm FrozenDay() {
  std::tm day = {};
  day.tm_year = 126;
  day.tm_mon = 10;
  day.tm_mday = 21;
  day.tm_wday = 6;
  day.tm_yday = 324;
  return day;
}

Value ValueOf(const nlohmann::ordered_json& json) {
  const absl::StatusOr<Value> value = ParseJsonValue(json.dump());
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Value();
}

class ChatTemplateGoldenTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    golden_ = new nlohmann::ordered_json(ReadTestJson("text-golden/chat_template.json"));
  }
  static void TearDownTestSuite() { delete golden_; }
  static nlohmann::ordered_json* golden_;
};

nlohmann::ordered_json* ChatTemplateGoldenTest::golden_ = nullptr;

TEST_F(ChatTemplateGoldenTest, RendersAndEncodesEveryMessageList) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm2Tokenizer();
  const std::string source = (*golden_)["template"];
  EXPECT_EQ(SmolLm2Spec().chat_template, source);
  const auto chat = ChatTemplate::Create(source, "<|im_start|>", "<|im_end|>");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_EQ((*golden_)["cases"].size(), 45u);
  const std::string prompt_tail = "<|im_start|>assistant\n";
  int differing = 0;
  for (const auto& golden : (*golden_)["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    ChatTemplateInput input{.messages = ValueOf(golden["messages"]), .now = FrozenDay()};
    auto rendered = (*chat)->Render(input);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text, golden["text"].get<std::string>());
    EXPECT_EQ(EncodeOrFail(*tokenizer, rendered->text, {.parse_special = true, .add_bos = false}),
              IdsOf(golden["ids"]));
    const bool differs = golden.contains("ids_content_as_plain_text");
    differing += differs;
    EXPECT_EQ(EncodeOrFail(*tokenizer, rendered->text, SafeEncodeOptions(*rendered)),
              IdsOf(differs ? golden["ids_content_as_plain_text"] : golden["ids"]));

    input.add_generation_prompt = false;
    rendered = (*chat)->Render(input);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text + prompt_tail, golden["text"].get<std::string>());
  }
  EXPECT_EQ(differing, 2);
}

TEST_F(ChatTemplateGoldenTest, FailsWhereJinjaFails) {
  const auto chat = ChatTemplate::Create((*golden_)["template"].get<std::string>(), "", "");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_EQ((*golden_)["error_cases"].size(), 4u);
  for (const auto& golden : (*golden_)["error_cases"]) {
    const auto rendered = (*chat)->Render({.messages = ValueOf(golden["messages"])});
    EXPECT_FALSE(rendered.ok()) << golden["name"];
  }
}

TEST_F(ChatTemplateGoldenTest, RendersTheTemplatesOfOtherFamilies) {
  ASSERT_EQ((*golden_)["other_families"].size(), 11u);
  int compared = 0;
  for (const auto& family : (*golden_)["other_families"]) {
    const auto parsed = jinja::Template::Parse(family["template"].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << family["family"] << parsed.status();
    for (const auto& golden : family["cases"]) {
      SCOPED_TRACE(family["family"].get<std::string>() + ": " + golden["name"].get<std::string>());
      const auto text = (*parsed)->Render(ValueOf(golden["vars"]), FrozenDay());
      ++compared;
      if (golden.contains("error")) {
        EXPECT_FALSE(text.ok());
        continue;
      }
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(text->bytes(), golden["text"].get<std::string>());
    }
  }
  EXPECT_GE(compared, 99);
}

// As their makers' model cards show a call. Those of Mistral come behind [TOOL_CALLS], which is not
// read.
TEST_F(ChatTemplateGoldenTest, TemplatesShowMessagesAndHaveTheToolFormatOfTheirFamily) {
  const std::map<std::string, ToolFormat> formats = {
      {"chatml", ToolFormat::kNone},       {"gemma", ToolFormat::kNone},
      {"llama2", ToolFormat::kNone},       {"llama3", ToolFormat::kNone},
      {"llama3.1", ToolFormat::kLlama3},   {"llama3.2-date", ToolFormat::kNone},
      {"mistral-v0.1", ToolFormat::kNone}, {"mistral-v0.3", ToolFormat::kUnknown},
      {"qwen2.5", ToolFormat::kHermes},    {"qwen3-reverse-scan", ToolFormat::kNone},
      {"zephyr", ToolFormat::kNone},
  };
  for (const auto& family : (*golden_)["other_families"]) {
    const auto name = family["family"].get<std::string>();
    SCOPED_TRACE(name);
    const auto chat = ChatTemplate::Create(family["template"].get<std::string>(), "<s>", "</s>");
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_TRUE((*chat)->shows_messages());
    ASSERT_TRUE(formats.contains(name));
    EXPECT_EQ((*chat)->tool_format(), formats.at(name));
  }
}

TEST_F(ChatTemplateGoldenTest, EngineEqualsJinja2) {
  ASSERT_EQ((*golden_)["jinja_engine"].size(), 54u);
  for (const auto& golden : (*golden_)["jinja_engine"]) {
    SCOPED_TRACE(golden["template"].get<std::string>());
    const auto parsed = jinja::Template::Parse(golden["template"].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto text = (*parsed)->Render(ValueOf(golden["vars"]), FrozenDay());
    if (golden.contains("error")) {
      EXPECT_FALSE(text.ok());
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->bytes(), golden["text"].get<std::string>());
  }
}

// Programs written for what is easily done otherwise than Python does it, and random ones.
TEST(JinjaGoldenTest, RendersOrFailsAsJinja2) {
  const nlohmann::ordered_json golden = ReadTestJson("text-golden/jinja2.json");
  ASSERT_EQ(golden["details"]["cases"].size(), 113u);
  ASSERT_EQ(golden["random"]["cases"].size(), 449u);
  for (const char* part : {"details", "random"}) {
    const Value variables = ValueOf(golden[part]["vars"]);
    for (const auto& program : golden[part]["cases"]) {
      SCOPED_TRACE(program["template"].get<std::string>());
      const auto parsed = jinja::Template::Parse(program["template"].get<std::string>());
      if (program.contains("error")) {
        EXPECT_FALSE(parsed.ok() && (*parsed)->Render(variables, FrozenDay()).ok());
        continue;
      }
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      const auto text = (*parsed)->Render(variables, FrozenDay());
      if (!text.ok()) {
        ADD_FAILURE() << text.status();
        continue;
      }
      EXPECT_EQ(text->bytes(), program["text"].get<std::string>());
    }
  }
}

// The % of strings, the filter `format` and `groupby`.
TEST(JinjaGoldenTest, FormatsAndGroupsAsJinja2) {
  const nlohmann::ordered_json golden = ReadTestJson("text-golden/formats.json");
  ASSERT_GT(golden["cases"].size(), 500u);
  const Value variables = ValueOf(golden["vars"]);
  for (const auto& program : golden["cases"]) {
    SCOPED_TRACE(program["template"].get<std::string>());
    const auto parsed = jinja::Template::Parse(program["template"].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto text = (*parsed)->Render(variables, FrozenDay());
    EXPECT_EQ(text.ok(), !program.contains("error")) << text.status();
    if (text.ok()) {
      EXPECT_EQ(text->bytes(), program.value("text", ""));
    }
  }
}

}  // namespace
}  // namespace refrain::engine
