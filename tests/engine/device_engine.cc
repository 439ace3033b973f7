#include "tests/engine/device_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/stream_output.h"
#include "tests/support/tiny_model.h"
#include "tests/support/token_prompt.h"

namespace refrain::engine {

WatchedRunner::WatchedRunner(std::unique_ptr<ModelRunner> runner, int most)
    : on_(std::move(runner)), most_(std::min(most, on_->max_in_flight())) {}

StepHandle WatchedRunner::Launch(const StepBatch& batch) {
  unseen_ids += std::count(batch.tokens.begin(), batch.tokens.end(), StepBatch::kFromPreviousStep);
  return on_->Launch(batch);
}

Output DeviceEngine::Wait(TokenStream& stream) const {
  StreamBatch all = testing::ReadBatches(stream);
  Output output{all.status, std::move(all.tokens), std::move(all.ends)};
  std::stable_sort(output.tokens.begin(), output.tokens.end(),
                   [](const TokenEvent& a, const TokenEvent& b) { return a.choice < b.choice; });
  return output;
}

EngineOptions SmallEngineOptions(const std::string& model_path) {
  EngineOptions options;
  options.model.path = model_path;
  options.backend.compute_dtype = "f32";
  options.kv_cache.memory_bytes = 1 << 20;
  options.kv_cache.chunk_tokens = 16;
  options.kv_cache.dtype = "f32";
  options.max_sequences = 5;
  options.step_token_budget = 24;
  options.reproducible = true;
  return options;
}

DeviceEngine Serve(const EngineOptions& options, const BackendChooser& choose, int most_in_flight) {
  auto parts = MakeEngineParts(options, choose);
  EXPECT_TRUE(parts.ok()) << parts.status();
  DeviceEngine served;
  auto runner = std::make_unique<WatchedRunner>(std::move(parts->runner), most_in_flight);
  served.runner = runner.get();
  parts->runner = std::move(runner);
  served.engine = *MakeEngine(*std::move(parts), options);
  return served;
}

std::string WriteSmallModel(const testing::TemporaryDirectory& folder, int32_t ffn_size,
                            int32_t window_tokens) {
  ModelConfig config = testing::TinyConfig();
  if (window_tokens > 0) config.architecture = "mistral";
  config.sliding_window_tokens = window_tokens;
  config.hidden_size = 32;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = config.rope.dim = 16;
  config.ffn_size = ffn_size;
  config.vocab_size = 300;
  config.max_context_tokens = 128;
  return *testing::WriteTinyFolder({.config = config}, folder.path() + "/model");
}

Request RequestFor(const std::vector<int32_t>& prompt, int32_t max_tokens) {
  Request request;
  request.prompt = testing::PromptOf(prompt);
  request.sampling.temperature = 0;
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true};
  return request;
}

void ExpectSame(const Output& got, const Output& expected, const std::string& what,
                float logprob_error) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.status, expected.status);
  ASSERT_EQ(got.tokens.size(), expected.tokens.size());
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    const TokenEvent &a = got.tokens[i], &b = expected.tokens[i];
    ASSERT_EQ(a.choice, b.choice) << i;
    ASSERT_EQ(a.token, b.token) << i;
    ASSERT_EQ(a.logprob.has_value(), b.logprob.has_value()) << i;
    if (a.logprob.has_value()) {
      ASSERT_NEAR(a.logprob->logprob, b.logprob->logprob, logprob_error) << i;
      ASSERT_EQ(a.logprob->rank, b.logprob->rank) << i;
    }
    ASSERT_EQ(a.top.size(), b.top.size()) << i;
    for (size_t k = 0; k < a.top.size(); ++k) ASSERT_EQ(a.top[k].token, b.top[k].token) << i;
  }
  ASSERT_EQ(got.ends.size(), expected.ends.size());
}

Request RandomRequest(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  std::vector<int32_t> prompt;
  // Many begin alike.
  for (int32_t i = 0, n = below(3) == 0 ? 0 : 20; i < n; ++i) prompt.push_back((i * i) % 200);
  for (int32_t n = 1 + below(12); n > 0; --n) prompt.push_back(below(300));
  Request request = RequestFor(prompt, 1 + below(12));
  SamplingParams& sampling = request.sampling;
  sampling.temperature = below(3) * 0.8;
  sampling.seed = random();
  if (below(3) == 0) sampling.top_k = 1 + below(40);
  if (below(3) == 0) sampling.top_p = 0.7;
  if (below(4) == 0) sampling.min_p = 0.05;
  if (below(4) == 0) sampling.frequency_penalty = 0.6;
  if (below(5) == 0) sampling.repetition_penalty = 1.2;
  if (below(6) == 0) sampling.banned_sequences = {{TokenId{40}}, {TokenId{17}, TokenId{18}}};
  if (below(4) == 0) request.logprobs.top = below(3);
  if (below(6) == 0) request.logprobs.prompt_top = 1;
  if (below(4) == 0) request.n = 2;
  if (below(5) == 0) {
    // As bytes of the small model's vocabulary; nearly everything, and next to nothing.
    auto format = std::make_shared<OutputFormat>();
    format->form = OutputFormat::Regex{below(2) == 0 ? "[^q]+" : "(ab|c|[d-k]{3})+x?"};
    format->field = "regex";
    request.format = std::move(format);
  }
  request.stop.stop_token_ids = {TokenId{7}, TokenId{70}, TokenId{170}};
  request.stop.min_tokens = std::min(below(4), request.stop.max_tokens);
  return request;
}

}  // namespace refrain::engine
