// Beam search through the whole engine, SmolLM2 in f32, against golden sequences that two
// implementations agree on.

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/model_harness.h"
#include "tests/support/stream_output.h"
#include "tests/support/token_prompt.h"

namespace refrain::testing {
namespace {

using engine::Engine;
using nlohmann::json;

using Tokens = std::vector<int32_t>;

std::unique_ptr<Engine> Start(bool reproducible) {
  engine::EngineOptions options;
  options.model.path = SmolLm2Path();
  options.backend.compute_dtype = "f32";
  options.kv_cache.dtype = "f32";
  options.kv_cache.memory_bytes = 256 << 20;
  options.max_context_tokens = 1024;
  options.reproducible = reproducible;
  auto engine = engine::CreateEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

json Cases() {
  std::ifstream file("tests/data/smollm2-golden/beam.json");
  return json::parse(file)["cases"];
}

engine::Request TokensRequest(const Tokens& prompt, int32_t max_tokens) {
  engine::Request request;
  request.prompt = PromptOf(prompt);
  request.stop.max_tokens = max_tokens;
  return request;
}

engine::Request BeamRequest(const json& one) {
  engine::Request request = TokensRequest(one["prompt_ids"], 24);
  request.n = 4;
  request.beam.emplace();
  return request;
}

// The choices' tokens, end tokens included.
std::vector<Tokens> Sequences(const engine::StreamBatch& output) {
  std::vector<Tokens> sequences(4);
  for (const engine::TokenEvent& event : output.tokens) {
    sequences.at(static_cast<size_t>(event.choice)).push_back(static_cast<int32_t>(event.token));
  }
  for (const engine::ChoiceEnd& end : output.ends) {
    if (end.stop_token.has_value()) {
      sequences.at(static_cast<size_t>(end.choice))
          .push_back(static_cast<int32_t>(*end.stop_token));
    }
  }
  return sequences;
}

std::vector<Tokens> Expected(const json& one) {
  std::vector<Tokens> sequences;
  for (const json& sequence : one["sequences"]) sequences.push_back(sequence["tokens"]);
  return sequences;
}

// What the engine gives the tokens behind the prompt when it reads them.
double SumOfLogprobs(Engine& engine, Tokens prompt, const Tokens& generated) {
  const size_t prompt_tokens = prompt.size();
  prompt.insert(prompt.end(), generated.begin(), generated.end());
  engine::Request request = TokensRequest(prompt, 0);
  request.logprobs.prompt_top = 0;
  auto stream = engine.Submit(request);
  EXPECT_TRUE(stream.ok()) << stream.status();
  const engine::StreamBatch output = ReadBatches(**stream);
  EXPECT_EQ(output.tokens.size(), prompt.size());
  double sum = 0;
  for (size_t i = prompt_tokens; i < output.tokens.size(); ++i) {
    sum += output.tokens[i].logprob->logprob;
  }
  return sum;
}

TEST(SmolLm2Beams, FindTheGoldenSequencesInOrderWithTheirScores) {
  const std::unique_ptr<Engine> engine = Start(/*reproducible=*/false);
  ASSERT_NE(engine, nullptr);
  const json cases = Cases();
  ASSERT_EQ(cases.size(), 6u);
  for (const json& one : cases) {
    auto stream = engine->Submit(BeamRequest(one));
    ASSERT_TRUE(stream.ok()) << stream.status();
    const engine::StreamBatch output = ReadBatches(**stream);
    ASSERT_TRUE(output.status.ok()) << output.status;
    const std::vector<Tokens> sequences = Sequences(output);
    ASSERT_EQ(sequences, Expected(one)) << one["name"];
    int32_t tokens = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      tokens += static_cast<int32_t>(sequences[i].size());
      const double sum = SumOfLogprobs(*engine, one["prompt_ids"], sequences[i]);
      EXPECT_NEAR(sum / static_cast<double>(sequences[i].size()), one["sequences"][i]["score"],
                  1e-4);
    }
    EXPECT_EQ(output.usage.completion_tokens, tokens);
  }
}

// 24 beams beside each other, and requests that sample come and go.
TEST(SmolLm2Beams, FindTheSameAllAtOnce) {
  const std::unique_ptr<Engine> engine = Start(/*reproducible=*/true);
  ASSERT_NE(engine, nullptr);
  const json cases = Cases();
  std::vector<std::shared_ptr<engine::TokenStream>> beams;
  std::vector<std::shared_ptr<engine::TokenStream>> others;
  for (const json& one : cases) {
    beams.push_back(*engine->Submit(BeamRequest(one)));
    engine::Request other = TokensRequest(one["prompt_ids"], 5 + static_cast<int>(others.size()));
    other.n = 2;
    others.push_back(*engine->Submit(other));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(Sequences(ReadBatches(*beams[i])), Expected(cases[i])) << cases[i]["name"];
  }
  for (const auto& stream : others) EXPECT_TRUE(ReadBatches(*stream).status.ok());
}

}  // namespace
}  // namespace refrain::testing
