// What a client says of thinking, in `messages` and `reasoning_effort`, as chat templates see it.

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <variant>

#include "server/openai/protocol.h"

namespace refrain::server::openai {
namespace {

// The conversation as templates get it; `members` are those of the request.
engine::ChatTemplateInput InputOf(const std::string& members) {
  const auto call = ParseGenerationCall(Endpoint::kChatCompletions, "{" + members + "}",
                                        {.max_context_tokens = 4096});
  EXPECT_TRUE(call.ok()) << call.status();
  if (!call.ok()) return {};
  EXPECT_TRUE(call->ignored_fields.empty());
  return std::get<engine::ChatPrompt>(call->first().prompt).input;
}

// vLLM answers with `reasoning`, and Qwen3's template shows `reasoning_content` alone.
TEST(Reasoning, OfAnAssistantHasBothNames) {
  const engine::ChatTemplateInput input =
      InputOf(R"("messages":[{"role":"assistant","reasoning":"a"},
          {"role":"assistant","reasoning":null,"reasoning_content":"b"},
          {"role":"assistant","reasoning":"c","reasoning_content":"d"},
          {"role":"assistant","reasoning":["e"]},{"role":"assistant"},
          {"role":"user","content":"","reasoning":"f"}])");
  constexpr const char* kExpected[][2] = {{"a", "a"},           {"b", "b"},
                                          {"c", "d"},           {"(none)", "(none)"},
                                          {"(none)", "(none)"}, {"f", "(none)"}};
  ASSERT_TRUE(input.messages.is_list());
  ASSERT_EQ(input.messages.AsList().size(), std::size(kExpected));
  const auto text = [&](size_t index, const char* name) {
    const auto* const value = input.messages.AsList()[index].AsMap().FindOrNull(name);
    return value != nullptr && value->is_string() ? std::string(value->AsString()) : "(none)";
  };
  for (size_t i = 0; i < std::size(kExpected); ++i) {
    EXPECT_EQ(text(i, "reasoning"), kExpected[i][0]) << i;
    EXPECT_EQ(text(i, "reasoning_content"), kExpected[i][1]) << i;
  }
}

TEST(Reasoning, IsFoundWhereTheTemplateHasItAndLeftOutWhereItIsNotAskedFor) {
  const auto output = [](engine::ReasoningFormat format, const std::string& members) {
    const auto call = ParseGenerationCall(
        Endpoint::kChatCompletions, R"({"messages":[{"role":"user","content":"hi"}])" + members,
        {.max_context_tokens = 4096, .reasoning = format});
    EXPECT_TRUE(call.ok()) << call.status();
    EXPECT_TRUE(call->ignored_fields.empty());
    return call->output;
  };
  using engine::ReasoningFormat;
  EXPECT_EQ(output(ReasoningFormat::kNone, "}").reasoning, ReasoningFormat::kNone);
  EXPECT_EQ(output(ReasoningFormat::kThink, "}").reasoning, ReasoningFormat::kThink);
  EXPECT_TRUE(output(ReasoningFormat::kThink, "}").include_reasoning);
  EXPECT_FALSE(output(ReasoningFormat::kThink, R"(,"include_reasoning":false})").include_reasoning);
  const auto completion =
      ParseGenerationCall(Endpoint::kCompletions, R"({"prompt":"a"})",
                          {.max_context_tokens = 9, .reasoning = ReasoningFormat::kThink});
  EXPECT_EQ(completion->output.reasoning, ReasoningFormat::kNone);
}

// Only where it is sent: a template that thinks by itself goes on doing so.
TEST(Reasoning, EffortIsAVariableAndNoneIsNoThinking) {
  const auto variables = [](const std::string& members) {
    const auto extra = InputOf(R"("messages":[{"role":"user","content":"hi"}])" + members).extra;
    std::string shown;
    if (!extra.is_map()) return shown;
    for (const auto& [name, value] : extra.AsMap().entries()) {
      const std::string text =
          value.is_bool() ? (value.AsBool() ? "true" : "false") : std::string(value.AsString());
      shown += std::string(name.AsString()) + "=" + text + " ";
    }
    return shown;
  };
  EXPECT_EQ(variables(""), "");
  EXPECT_EQ(variables(R"(,"reasoning_effort":"none")"),
            "reasoning_effort=none enable_thinking=false ");
  EXPECT_EQ(variables(R"(,"reasoning_effort":"high")"),
            "reasoning_effort=high enable_thinking=true ");
  EXPECT_EQ(variables(R"(,"reasoning_effort":"none",)"
                      R"("chat_template_kwargs":{"enable_thinking":true,"x":"y"})"),
            "enable_thinking=true x=y reasoning_effort=none ");
  EXPECT_EQ(variables(R"(,"reasoning_effort":"none","chat_template_kwargs":)"
                      R"({"reasoning_effort":"low"})"),
            "reasoning_effort=low enable_thinking=false ");
  for (const char* nothing : {"null", "\"\"", "5", "[]"}) {
    EXPECT_EQ(variables(std::string(",\"reasoning_effort\":") + nothing), "") << nothing;
  }
}

}  // namespace
}  // namespace refrain::server::openai
