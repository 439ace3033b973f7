// Conversations with tools through the whole engine, as HTTP's clients send them.

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/text/detokenizer.h"
#include "server/openai/protocol.h"
#include "server/served_model.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using nlohmann::ordered_json;

// The tools come first, as in most, and a call's arguments as text if they are one, as in Qwen3's.
constexpr char kTemplate[] =
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "Answer with <tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls %}{% if c.function.arguments is string %}{{ c.function.arguments }}"
    "{% else %}{{ c.function.arguments | tojson }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class ToolConversationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModelOptions model;
    model.config.max_context_tokens = 4096;
    const auto path = WriteTinyFolder(model, directory_.path() + "/model");
    ASSERT_TRUE(path.ok()) << path.status();
    std::ofstream(*path + "/chat_template.jinja") << kTemplate;
    engine::EngineOptions options;
    options.model.path = *path;
    options.kv_cache.memory_bytes = 64 << 20;
    auto made = engine::CreateEngine(options);
    ASSERT_TRUE(made.ok()) << made.status();
    engine_ = *std::move(made);
  }

  engine::StreamBatch Ask(const ordered_json& body) {
    const auto call = server::openai::ParseGenerationCall(
        server::openai::Endpoint::kChatCompletions, body.dump(), server::LimitsOf(*engine_, 8, 8));
    EXPECT_TRUE(call.ok()) << call.status();
    if (!call.ok()) return {};
    auto stream = engine_->Submit(call->first());
    EXPECT_TRUE(stream.ok()) << stream.status();
    if (!stream.ok()) return {};
    engine::StreamBatch all = ReadBatches(**stream);
    EXPECT_TRUE(all.status.ok()) << all.status;
    return all;
  }

  // What a client sends back of a call, and its result.
  static void AddCall(const std::string& arguments, ordered_json* messages) {
    const ordered_json call = {{"id", "call00001"},
                               {"type", "function"},
                               {"function", {{"name", "weather"}, {"arguments", arguments}}}};
    messages->push_back(
        {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", ordered_json::array({call})}});
    messages->push_back(
        {{"role", "tool"}, {"tool_call_id", "call00001"}, {"content", "Sun, all day long."}});
  }

  TemporaryDirectory directory_;
  std::unique_ptr<engine::Engine> engine_;
};

// An agent calls tools until it asks for an answer without.
TEST_F(ToolConversationTest, TheLastAnswerFindsTheConversationInTheCache) {
  const ordered_json function = {{"name", "weather"},
                                 {"description", "Tells what the weather will be in a city."},
                                 {"parameters", {{"type", "object"}}}};
  ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Rain in Paris today?"}}}},
                       {"tools", {{{"type", "function"}, {"function", function}}}},
                       {"tool_choice", "auto"},
                       {"max_tokens", 4}};
  const engine::Usage first = Ask(body).usage;
  AddCall(R"({"city":"Paris"})", &body["messages"]);
  const engine::Usage second = Ask(body).usage;
  EXPECT_GT(second.cached_tokens, first.prompt_tokens - 4);  // ids at the border may differ
  body["tool_choice"] = "none";
  const engine::Usage last = Ask(body).usage;
  EXPECT_EQ(last.prompt_tokens, second.prompt_tokens);
  EXPECT_EQ(last.cached_tokens, second.prompt_tokens - 1);
}

// What `max_tokens` cut, here right behind the beginning of the arguments, is no JSON.
TEST_F(ToolConversationTest, ACallThatWasCutIsFoundInTheCache) {
  ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Rain in Paris today?"}}}},
                       {"logit_bias", {{"0", -100}, {"1", -100}, {"2", -100}}},  // control tokens
                       {"max_tokens", 24}};
  const engine::StreamBatch first = Ask(body);
  engine::Detokenizer detokenizer(&engine_->tokenizer());
  std::string cut;
  for (const engine::TokenEvent& event : first.tokens) cut += detokenizer.Append(event.token);
  cut += detokenizer.Flush();
  AddCall(cut, &body["messages"]);
  const engine::Usage second = Ask(body).usage;
  EXPECT_EQ(first.usage.completion_tokens, 24);
  EXPECT_GE(second.cached_tokens, first.usage.prompt_tokens + 20);
}

}  // namespace
}  // namespace refrain::testing
