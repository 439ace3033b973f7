// Questions through the whole engine as it is served by default: the model's own chat template,
// weights as stored, 16-bit KV, temperature 0.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/text/detokenizer.h"
#include "tests/support/model_harness.h"
#include "tests/support/stream_output.h"

namespace refrain::testing {
namespace {

using engine::Engine;
using engine::jinja::Map;
using engine::jinja::Value;

class SmolLm2Chat : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine::EngineOptions options;
    options.model.path = SmolLm2Path();
    options.kv_cache.memory_bytes = 64 << 20;
    options.max_context_tokens = 1024;
    auto made = engine::CreateEngine(options);
    ASSERT_TRUE(made.ok()) << made.status();
    engine_ = (*std::move(made)).release();
  }
  static void TearDownTestSuite() { delete std::exchange(engine_, nullptr); }

  static std::string Answer(const std::string& question) {
    Map message;
    message.Set("role", Value::String("user"));
    message.Set("content", Value::String(question));
    engine::ChatPrompt prompt;
    prompt.input.messages = Value::MakeList({Value::MakeMap(std::move(message))});
    engine::Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.stop.max_tokens = 48;
    auto stream = engine_->Submit(request);
    EXPECT_TRUE(stream.ok()) << stream.status();
    if (!stream.ok()) return "";
    engine::Detokenizer detokenizer(&engine_->tokenizer());
    const engine::StreamBatch all = ReadBatches(**stream);
    EXPECT_TRUE(all.status.ok()) << all.status;
    std::string text;
    for (const engine::TokenEvent& event : all.tokens) text += detokenizer.Append(event.token);
    return text + detokenizer.Flush();
  }

  static Engine* engine_;
};
Engine* SmolLm2Chat::engine_ = nullptr;

// Its first token leads the second by 0.08: activations of 8 bits answer otherwise.
TEST_F(SmolLm2Chat, KnowsTheCapitalOfFrance) {
  EXPECT_EQ(Answer("What is the capital of France?"), "The capital of France is Paris.");
}

TEST_F(SmolLm2Chat, AnswersTheHaikuAsInFloat64) {
  EXPECT_EQ(Answer("Write a haiku about the sea."),
            "The waves of the sea, a silent beauty,\nA gentle lapping of the shore,\nA reminder of "
            "the beauty that lies beneath,\nA reminder of the ocean's power.");
}

}  // namespace
}  // namespace refrain::testing
