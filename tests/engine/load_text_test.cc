// Which chat template a model gets, and what is told of it.

#include "engine/load_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "engine/create_engine.h"
#include "engine/text/jinja/json.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kLoop[] = "{% for m in messages %}{{ m.content }}{% endfor %}";

class LoadTextTest : public ::testing::Test {
 protected:
  // Of a GGUF file with this chat template, with a configuration that may name another.
  absl::StatusOr<EngineParts> Load(const std::string& chat_template,
                                   const std::string& template_file = "") {
    const auto path =
        refrain::testing::WriteTinyGguf({.chat_template = chat_template}, directory_.path());
    EXPECT_TRUE(path.ok()) << path.status();
    return LoadModel(*path, template_file);
  }

  absl::StatusOr<EngineParts> LoadModel(const std::string& path, const std::string& template_file) {
    EngineOptions options;
    options.model.path = path;
    options.model.chat_template_file = template_file;
    options.backend.kind = "cpu";
    options.kv_cache.memory_bytes = 4 << 20;
    return MakeEngineParts(options);
  }

  std::string WriteTemplate(const std::string& source) {
    const std::string path = directory_.path() + "/other.jinja";
    std::ofstream(path) << source;
    return path;
  }

  // What "Hi" from a user is rendered as, or why not.
  static std::string Rendered(const EngineParts& parts) {
    const auto rendered = parts.chat_template->Render(
        {.messages = *jinja::ParseJsonValue(R"([{"role": "user", "content": "Hi"}])")});
    return rendered.ok() ? rendered->text : rendered.status().ToString();
  }

  TemporaryDirectory directory_;
};

TEST_F(LoadTextTest, TakesTheTemplateThatANameStandsFor) {
  const auto parts = Load("mistral-v3");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->model.warning, "");
  ASSERT_NE(parts->chat_template, nullptr);
  EXPECT_EQ(Rendered(*parts), "[INST] Hi[/INST]");
  EXPECT_THAT(parts->model.tokenizer.chat_template, HasSubstr("{{ message.content }}[/INST]"));
}

// As llama.cpp, which renders none: the tokenizer adds it.
TEST_F(LoadTextTest, TemplatesOfNamesBeginWithTheBosThatTheTokenizerAdds) {
  const auto folder = refrain::testing::WriteTinyFolder({}, directory_.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::ofstream(*folder + "/tokenizer_config.json")
      << R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<|endoftext|>",)"
      << R"("add_bos_token":true,"chat_template":"chatml"})";
  const auto parts = LoadModel(*folder, "");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(Rendered(*parts),
            "<|endoftext|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(LoadTextTest, ANameThatStandsForNoneIsNoTemplate) {
  const auto parts = Load("mistral-v99");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->chat_template, nullptr);
  EXPECT_EQ(parts->model.tokenizer.chat_template, "");
  EXPECT_EQ(parts->model.warning,
            "the chat template is \"mistral-v99\", which shows the model no message: chats are "
            "refused, completions are not; model.chat_template_file may name another chat "
            "template");
}

TEST_F(LoadTextTest, ATemplateBeyondTheSubsetCostsTheChatsAlone) {
  const std::string beyond = std::string(kLoop) + "\n{% include 'x' %}";
  const auto parts = Load(beyond);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.warning,
              AllOf(HasSubstr("line 2"), HasSubstr("'include'"), HasSubstr("chats are refused")));
  ASSERT_NE(parts->chat_template, nullptr);
  EXPECT_EQ(parts->chat_template->tool_format(), ToolFormat::kUnknown);
  EXPECT_THAT(Rendered(*parts), AllOf(HasSubstr("FAILED_PRECONDITION: the model's chat template "
                                                "cannot be used: chat template"),
                                      HasSubstr("line 2"), HasSubstr("'include'")));
  EXPECT_EQ(parts->model.tokenizer.chat_template, beyond);
}

TEST_F(LoadTextTest, TheConfigurationsTemplateStandsAboveTheModels) {
  const std::string other = WriteTemplate("other: " + std::string(kLoop));
  for (const char* own : {"{% include 'x' %}", "mistral-v3", "mine: {{ messages[0].content }}"}) {
    const auto parts = Load(own, other);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(parts->model.warning, "");
    EXPECT_EQ(Rendered(*parts), "other: Hi");
    EXPECT_EQ(parts->model.tokenizer.chat_template, "other: " + std::string(kLoop));
  }
  // Above a model's template for tools, too.
  const auto folder = refrain::testing::WriteTinyFolder({}, directory_.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::ofstream(*folder + "/tokenizer_config.json")
      << R"({"chat_template":[{"name":"default","template":"{{ messages }}"},)"
      << R"({"name":"tool_use","template":"{{ messages }}{{ tools }}<tool_call>"}]})";
  EXPECT_EQ(LoadModel(*folder, "")->chat_template->tool_format(), ToolFormat::kHermes);
  EXPECT_EQ(LoadModel(*folder, other)->chat_template->tool_format(), ToolFormat::kNone);
}

TEST_F(LoadTextTest, RefusesATemplateOfTheConfigurationThatCannotBeUsed) {
  const auto refusal = [&](const std::string& path) {
    return std::string(Load(kLoop, path).status().message());
  };
  const std::string path = directory_.path() + "/other.jinja";
  const std::string begin = "model.chat_template_file: \"" + path + "\"";
  EXPECT_THAT(refusal(path), HasSubstr("model.chat_template_file: "));
  EXPECT_THAT(refusal(path), HasSubstr(path));
  EXPECT_THAT(refusal(directory_.path()), HasSubstr("model.chat_template_file: "));
  WriteTemplate("");
  EXPECT_THAT(refusal(path), HasSubstr(begin + " has 0 bytes"));
  WriteTemplate(std::string(kLoop) + "\n\n{% include 'x' %}");
  EXPECT_THAT(refusal(path),
              AllOf(HasSubstr(begin + ": "), HasSubstr("line 3"), HasSubstr("'include'")));
  WriteTemplate("no Jinja");
  EXPECT_THAT(refusal(path),
              AllOf(HasSubstr(begin + ": "), HasSubstr("shows the model no message")));
}

}  // namespace
}  // namespace refrain::engine
