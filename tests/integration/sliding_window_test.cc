// A model with a sliding window (Mistral) as it is served: prefixes shared, prompts cut, keys
// before the window not read, two-phase attention or paged, reproducible or not. The reference back
// end, which knows none of this, gives each request alone the same tokens and log-probabilities.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/worse.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::AttentionModeOption;
using engine::Engine;
using engine::EngineOptions;
using engine::Request;
using engine::TokenId;

constexpr int kRequests = 16;
constexpr int32_t kWindow = 37;
constexpr int32_t kMaxTokens = 12;
constexpr int32_t kCommonTokens = 100;  // of all prompts: longer than the window, no whole chunks

// Prompts part after the common tokens, half of them again after 30 more.
Request RequestOf(int index) {
  engine::TokenPrompt prompt;
  const auto append = [&prompt](uint32_t seed, int32_t count) {
    std::mt19937 random(seed);
    for (int32_t i = 0; i < count; ++i) {
      prompt.ids.push_back(static_cast<TokenId>(3 + random() % 256));
    }
  };
  append(1, kCommonTokens);
  append(2 + index % 2, 30);
  append(100 + index, index * 5);
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.stop.max_tokens = kMaxTokens;
  request.stop.ignore_eos = true;
  request.logprobs.top = 2;
  return request;
}

std::string WriteModel(const TemporaryDirectory& folder, int32_t window_tokens) {
  TinyModelOptions model;
  model.config.sliding_window_tokens = window_tokens;
  model.config.tied_embeddings = false;  // tied, random weights say the same token again and again
  const auto path = WriteTinyGguf(model, folder.path());
  EXPECT_TRUE(path.ok()) << path.status();
  return path.value_or("");
}

struct Setting {
  const char* backend = "cpu";
  AttentionModeOption mode = AttentionModeOption::kTwoPhase;
  bool reproducible = false;
  bool prefix_cache = true;
};

std::unique_ptr<Engine> Start(const std::string& path, const Setting& setting) {
  EngineOptions options;
  options.model.path = path;
  options.backend.kind = setting.backend;
  options.backend.threads = 2;
  options.backend.compute_dtype = "f32";
  options.kv_cache.dtype = "f32";
  options.kv_cache.memory_bytes = 64 << 20;
  options.kv_cache.chunk_tokens = 16;
  options.kv_cache.prefix_cache = setting.prefix_cache;
  options.max_sequences = kRequests;
  options.step_token_budget = 48;
  options.attention_mode = setting.mode;
  options.reproducible = setting.reproducible;
  auto engine = engine::CreateEngine(options);
  if (!engine.ok()) ADD_FAILURE() << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

std::vector<StreamOutput> OneByOne(Engine& engine) {
  std::vector<StreamOutput> outputs;
  for (int i = 0; i < kRequests; ++i) {
    outputs.push_back(*ReadToEnd(**engine.Submit(RequestOf(i))));
  }
  return outputs;
}

std::vector<StreamOutput> AllAtOnce(Engine& engine) {
  std::vector<std::shared_ptr<engine::TokenStream>> streams;
  for (int i = 0; i < kRequests; ++i) streams.push_back(*engine.Submit(RequestOf(i)));
  std::vector<StreamOutput> outputs;
  for (const auto& stream : streams) outputs.push_back(*ReadToEnd(*stream));
  return outputs;
}

void ExpectClose(const std::vector<StreamOutput>& got, const std::vector<StreamOutput>& want,
                 const std::string& what) {
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens) << what << ", request " << i;
    ASSERT_EQ(got[i].logprob_bits.size(), want[i].logprob_bits.size());
    double worst = 0;
    for (size_t k = 0; k < want[i].logprob_bits.size(); ++k) {
      const double difference = double{std::bit_cast<float>(got[i].logprob_bits[k])} -
                                double{std::bit_cast<float>(want[i].logprob_bits[k])};
      worst = kernels::Worse(worst, std::abs(difference));
    }
    EXPECT_LT(worst, 1e-4) << what << ", request " << i;
  }
}

TEST(SlidingWindowTest, IsTheReferencesInEveryMode) {
  const TemporaryDirectory folder;
  const std::string path = WriteModel(folder, kWindow);
  std::vector<StreamOutput> want;
  {
    const auto oracle = Start(path, {.backend = "reference", .prefix_cache = false});
    ASSERT_NE(oracle, nullptr);
    want = OneByOne(*oracle);
  }
  for (const StreamOutput& output : want) {
    ASSERT_EQ(output.tokens.size(), size_t{kMaxTokens});
    ASSERT_EQ(output.logprob_bits.size(), size_t{3 * kMaxTokens});
  }
  for (const auto mode : {AttentionModeOption::kTwoPhase, AttentionModeOption::kPaged}) {
    for (const bool reproducible : {false, true}) {
      const std::string what =
          std::string(mode == AttentionModeOption::kPaged ? "paged" : "two_phase") +
          (reproducible ? ", reproducible" : "");
      const auto engine = Start(path, {.mode = mode, .reproducible = reproducible});
      ASSERT_NE(engine, nullptr);
      const std::vector<StreamOutput> together = AllAtOnce(*engine);
      ExpectClose(together, want, what + ", all at once");
      EXPECT_GE(engine->stats().cached_prompt_tokens_total, (kRequests - 1) * kCommonTokens / 2);
      const std::vector<StreamOutput> again = OneByOne(*engine);
      ExpectClose(again, want, what + ", one by one");
      if (reproducible) {
        EXPECT_EQ(again, together) << what;
      }
    }
  }
}

// So what is compared above is the window's work.
TEST(SlidingWindowTest, GivesOtherTokensThanNone) {
  const TemporaryDirectory folder, other;
  const auto windowed = Start(WriteModel(folder, kWindow), {});
  const auto whole = Start(WriteModel(other, 0), {});
  ASSERT_TRUE(windowed != nullptr && whole != nullptr);
  const std::vector<StreamOutput> near = OneByOne(*windowed), all = OneByOne(*whole);
  for (int i = 0; i < kRequests; ++i) EXPECT_NE(near[i].tokens, all[i].tokens) << i;
}

}  // namespace
}  // namespace refrain::testing
