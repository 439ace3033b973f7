// engine.reproducible = on with a real model: its widths (576, 1,536), its nine heads over three,
// Q4_1 beside a Q8_0 head, K and V in f16 and bf16, activations of 15 bits and of 8. Each golden
// prompt gets the same tokens and log-probability bits alone, beside the other goldens and
// strangers that join, end and are cancelled, on one thread or two, in steps of 512 tokens or 48.
// (reproducible_test has every weight type, on random weights.)

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "tests/integration/golden/golden_checks.h"
#include "tests/support/stream_output.h"

namespace refrain::testing {
namespace {

using engine::Engine;
using engine::TokenId;

constexpr int32_t kGenerated = 8;
constexpr int32_t kLongPrompt = 560;  // more than a segment of 512 keys

engine::Request RequestOf(const std::vector<int32_t>& prompt, int32_t max_tokens) {
  engine::TokenPrompt tokens;
  for (const int32_t id : prompt) tokens.ids.push_back(TokenId{id});
  engine::Request request;
  request.prompt = std::move(tokens);
  request.sampling.temperature = 0;
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  request.logprobs.top = 2;
  return request;
}

struct Variant {
  int32_t threads;
  int32_t step_token_budget;
};

struct Arithmetic {
  const char* kv_dtype;
  const char* compute_dtype;
};

class SmolLm2Reproducible : public ::testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    text_ = LogitsPrompt("wiki 2000");
    for (const GreedyCase& one : GreedyCases()) goldens_.push_back(one.prompt);
    goldens_.emplace_back(text_.begin(), text_.begin() + kLongPrompt);
    ASSERT_EQ(goldens_.size(), 17u);
  }

  std::unique_ptr<Engine> Start(Variant variant) const {
    engine::EngineOptions options;
    options.model.path = SmolLm2Path();
    options.backend.threads = variant.threads;
    options.step_token_budget = variant.step_token_budget;
    options.max_sequences = 24;
    options.max_context_tokens = 1024;
    options.backend.compute_dtype = GetParam().compute_dtype;
    options.kv_cache.dtype = GetParam().kv_dtype;
    options.kv_cache.memory_bytes = 256 << 20;
    options.reproducible = true;
    auto engine = engine::CreateEngine(options);
    if (!engine.ok()) ADD_FAILURE() << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  std::vector<StreamOutput> OneByOne(Engine& engine) const {
    std::vector<StreamOutput> outputs;
    for (const auto& prompt : goldens_) {
      outputs.push_back(*ReadToEnd(**engine.Submit(RequestOf(prompt, kGenerated))));
    }
    return outputs;
  }

  // All goldens, and strangers: some before, some behind, some while these run.
  std::vector<StreamOutput> InCompany(Engine& engine) const {
    std::mt19937 random(5);
    std::vector<std::shared_ptr<engine::TokenStream>> strangers;
    const auto join = [&] {
      const auto begin = text_.begin() + kLongPrompt + random() % 1200;
      const std::vector<int32_t> prompt(begin, begin + 1 + random() % 90);
      auto stream = engine.Submit(RequestOf(prompt, 1 + static_cast<int32_t>(random() % 10)));
      ASSERT_TRUE(stream.ok()) << stream.status();
      strangers.push_back(*stream);
    };
    for (int i = 0; i < 4; ++i) join();
    std::vector<std::shared_ptr<engine::TokenStream>> streams;
    for (const auto& prompt : goldens_) {
      streams.push_back(*engine.Submit(RequestOf(prompt, kGenerated)));
    }
    for (int i = 0; i < 10; ++i) {
      join();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      strangers[random() % strangers.size()]->Cancel();
    }
    std::vector<StreamOutput> outputs;
    for (const auto& stream : streams) outputs.push_back(*ReadToEnd(*stream));
    return outputs;
  }

  void ExpectSame(const std::vector<StreamOutput>& got, const std::vector<StreamOutput>& want,
                  Variant variant, const char* how) const {
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i], want[i]) << "golden " << i << " " << how << ", threads " << variant.threads
                                 << ", steps of " << variant.step_token_budget << " tokens";
    }
  }

  std::vector<int32_t> text_;
  std::vector<std::vector<int32_t>> goldens_;
};

TEST_P(SmolLm2Reproducible, TokensAndLogprobBitsDoNotDependOnCompanyThreadsOrCuts) {
  std::vector<StreamOutput> alone;
  for (const Variant variant : {Variant{1, 512}, Variant{2, 48}}) {
    const auto engine = Start(variant);
    ASSERT_NE(engine, nullptr);
    const std::vector<StreamOutput> outputs = OneByOne(*engine);
    if (alone.empty()) {
      alone = outputs;
      for (const StreamOutput& output : alone) {
        ASSERT_EQ(output.tokens.size(), size_t{kGenerated});
        ASSERT_EQ(output.logprob_bits.size(), size_t{3 * kGenerated});
      }
    } else {
      ExpectSame(outputs, alone, variant, "alone");
    }
    // Else the company would find the prompts computed.
    EXPECT_GT(engine->DropIdleCache().value_or(0), 0);
    ExpectSame(InCompany(*engine), alone, variant, "in company");
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, SmolLm2Reproducible,
                         ::testing::Values(Arithmetic{"f16", "auto"}, Arithmetic{"bf16", "auto"},
                                           Arithmetic{"f16", "int8"}),
                         [](const auto& info) {
                           return std::string(info.param.kv_dtype) + "_" + info.param.compute_dtype;
                         });

}  // namespace
}  // namespace refrain::testing
