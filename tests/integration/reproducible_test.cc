// engine.reproducible = on: tokens and log-probability bits of a request do not depend on what else
// runs, on the thread count, or on how its prompt was cut (DESIGN section 5). Every weight type,
// and activations of 15 bits and of 8, on a model of random weights.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::Request;
using engine::TokenId;
using engine::TokenStream;
using kernels::DType;

Request RandomRequest(uint32_t seed, int32_t prompt_tokens, int32_t max_tokens) {
  std::mt19937 random(seed);
  engine::TokenPrompt prompt;
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    prompt.ids.push_back(static_cast<TokenId>(3 + random() % 256));
  }
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.9;
  request.sampling.seed = seed;
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  request.logprobs.top = 2;
  return request;
}

constexpr int kGoldens = 3;
Request Golden(int i) { return RandomRequest(100 + i, 5 + 97 * i, 24); }

struct Variant {
  int32_t threads;
  int32_t step_token_budget;
};

std::unique_ptr<Engine> Start(const std::string& path, const char* compute_dtype, Variant variant) {
  EngineOptions options;
  options.model.path = path;
  options.backend.compute_dtype = compute_dtype;
  options.backend.threads = variant.threads;
  options.step_token_budget = variant.step_token_budget;
  options.max_sequences = 16;
  options.kv_cache.memory_bytes = 64 << 20;
  options.reproducible = true;
  auto engine = engine::CreateEngine(options);
  if (!engine.ok()) ADD_FAILURE() << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

StreamOutput Alone(Engine& engine, int golden) {
  auto stream = engine.Submit(Golden(golden));
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *ReadToEnd(**stream);
}

// The goldens beside 15 others of all lengths, which end, are cancelled and come anew meanwhile.
std::vector<StreamOutput> InCompany(Engine& engine) {
  std::mt19937 random(17);
  std::vector<std::shared_ptr<TokenStream>> others;
  const auto join = [&] {
    auto stream = engine.Submit(RandomRequest(random(), 1 + static_cast<int32_t>(random() % 200),
                                              1 + static_cast<int32_t>(random() % 40)));
    ASSERT_TRUE(stream.ok()) << stream.status();
    others.push_back(*stream);
  };
  for (int i = 0; i < 8; ++i) join();
  std::vector<std::shared_ptr<TokenStream>> goldens;
  for (int i = 0; i < kGoldens; ++i) goldens.push_back(*engine.Submit(Golden(i)));
  for (int i = 0; i < 7; ++i) join();
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    others[random() % others.size()]->Cancel();
    join();
  }
  std::vector<StreamOutput> outputs;
  for (const auto& golden : goldens) outputs.push_back(*ReadToEnd(*golden));
  return outputs;
}

class Reproducible : public ::testing::TestWithParam<std::tuple<DType, const char*>> {};

TEST_P(Reproducible, TokensAndLogprobBitsDoNotDependOnCompanyThreadsOrCuts) {
  TemporaryDirectory directory;
  TinyModelOptions model;
  model.matrix_dtype = std::get<0>(GetParam());
  const auto path = WriteTinyGguf(model, directory.path());
  ASSERT_TRUE(path.ok()) << path.status();

  std::vector<StreamOutput> expected;
  for (const Variant variant : {Variant{1, 512}, Variant{2, 64}, Variant{3, 17}}) {
    const std::unique_ptr<Engine> engine = Start(*path, std::get<1>(GetParam()), variant);
    ASSERT_NE(engine, nullptr);
    for (int i = 0; i < kGoldens; ++i) {
      const StreamOutput alone = Alone(*engine, i);
      ASSERT_EQ(alone.tokens.size(), 24u);
      ASSERT_EQ(alone.logprob_bits.size(), 3 * 24u);
      if (static_cast<int>(expected.size()) == i) {
        expected.push_back(alone);
      } else {
        EXPECT_EQ(alone, expected[i]) << "alone, threads " << variant.threads << ", step of "
                                      << variant.step_token_budget << " tokens, golden " << i;
      }
    }
    // Else the company would find the prompts computed.
    EXPECT_GT(engine->DropIdleCache().value_or(0), 0);
    const std::vector<StreamOutput> together = InCompany(*engine);
    for (int i = 0; i < kGoldens; ++i) {
      EXPECT_EQ(together[i], expected[i])
          << "in company, threads " << variant.threads << ", step of " << variant.step_token_budget
          << " tokens, golden " << i;
    }
  }
  EXPECT_NE(expected[0], expected[1]);
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<DType, const char*>>& info) {
  const std::string compute = std::get<1>(info.param);
  return std::string(kernels::Traits(std::get<0>(info.param)).name) +
         (compute == "auto" ? "" : "_" + compute);
}

INSTANTIATE_TEST_SUITE_P(
    EveryWeightType, Reproducible,
    ::testing::Combine(::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K),
                       ::testing::Values("auto")),
    CaseName);
// One of each way in which scales are stored.
INSTANTIATE_TEST_SUITE_P(Int8Activations, Reproducible,
                         ::testing::Combine(::testing::Values(DType::kQ8_0, DType::kQ4_1,
                                                              DType::kQ6_K),
                                            ::testing::Values("int8")),
                         CaseName);

}  // namespace
}  // namespace refrain::testing
