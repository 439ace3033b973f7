// engine.reproducible = on with a real model: its widths (576, 1,536), its nine heads over three, K
// and V in f16, bf16 and fp8, activations of 15 bits and of 8, its weights in every type. Each
// golden prompt gets the same tokens and log-probability bits alone, beside the other goldens and
// strangers that join, end and are cancelled, on one thread or two, in steps of 512 tokens or 48.

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "tests/integration/golden/golden_checks.h"
#include "tests/support/requantized_model.h"
#include "tests/support/slow_build.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/token_prompt.h"

namespace refrain::testing {
namespace {

using engine::Engine;
using kernels::DType;

constexpr int32_t kGenerated = 8;
constexpr int32_t kLongPrompt = 560;  // more than a segment of 512 keys

engine::Request RequestOf(const std::vector<int32_t>& prompt, int32_t max_tokens) {
  engine::Request request;
  request.prompt = PromptOf(prompt);
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
  std::string kv_dtype;
  std::string compute_dtype;
};

std::ostream& operator<<(std::ostream& out, const Arithmetic& arithmetic) {
  return out << arithmetic.kv_dtype << "_" << arithmetic.compute_dtype;
}

std::unique_ptr<Engine> Start(const std::string& model, const Arithmetic& arithmetic,
                              Variant variant) {
  engine::EngineOptions options;
  options.model.path = model;
  options.backend.threads = variant.threads;
  options.step_token_budget = variant.step_token_budget;
  options.max_sequences = 24;
  options.max_context_tokens = 1024;
  options.backend.compute_dtype = arithmetic.compute_dtype;
  options.kv_cache.dtype = arithmetic.kv_dtype;
  options.kv_cache.memory_bytes = 256 << 20;
  options.reproducible = true;
  auto engine = engine::CreateEngine(options);
  if (!engine.ok()) ADD_FAILURE() << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// The golden prompts, and how they are asked.
class GoldenPrompts {
 public:
  GoldenPrompts() : text_(LogitsPrompt("wiki 2000")) {
    for (const GreedyCase& one : GreedyCases()) prompts_.push_back(one.prompt);
  }

  void AddLong() { prompts_.emplace_back(text_.begin(), text_.begin() + kLongPrompt); }
  size_t size() const { return prompts_.size(); }

  std::vector<StreamOutput> OneByOne(Engine& engine) const {
    std::vector<StreamOutput> outputs;
    for (const auto& prompt : prompts_) {
      outputs.push_back(*ReadToEnd(**engine.Submit(RequestOf(prompt, kGenerated))));
      EXPECT_EQ(outputs.back().tokens.size(), size_t{kGenerated});
      EXPECT_EQ(outputs.back().logprob_bits.size(), size_t{3 * kGenerated});
    }
    return outputs;
  }

  // All of them, and strangers: some before, some behind, some while these run.
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
    for (const auto& prompt : prompts_) {
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

 private:
  std::vector<int32_t> text_;
  std::vector<std::vector<int32_t>> prompts_;
};

void ExpectSame(const std::vector<StreamOutput>& got, const std::vector<StreamOutput>& want,
                Variant variant, const char* how) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i], want[i]) << "golden " << i << " " << how << ", threads " << variant.threads
                               << ", steps of " << variant.step_token_budget << " tokens";
  }
}

class SmolLm2Reproducible : public ::testing::TestWithParam<Arithmetic> {};

TEST_P(SmolLm2Reproducible, TokensAndLogprobBitsDoNotDependOnCompanyThreadsOrCuts) {
  GoldenPrompts goldens;
  goldens.AddLong();
  ASSERT_EQ(goldens.size(), 17u);
  std::vector<StreamOutput> alone;
  for (const Variant variant : {Variant{1, 512}, Variant{2, 48}}) {
    const auto engine = Start(SmolLm2Path(), GetParam(), variant);
    ASSERT_NE(engine, nullptr);
    const std::vector<StreamOutput> outputs = goldens.OneByOne(*engine);
    if (alone.empty()) alone = outputs;
    ExpectSame(outputs, alone, variant, "alone");
    // Else the company would find the prompts computed.
    EXPECT_GT(engine->DropIdleCache().value_or(0), 0);
    ExpectSame(goldens.InCompany(*engine), alone, variant, "in company");
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, SmolLm2Reproducible,
                         ::testing::Values(Arithmetic{"f16", "auto"}, Arithmetic{"bf16", "auto"},
                                           Arithmetic{"f16", "int8"},
                                           Arithmetic{"fp8_e4m3", "auto"}),
                         ::testing::PrintToStringParamName());

struct WeightType {
  DType dtype;
  // Of a golden token's log-probability, in the mean over 16 prompts of 8 tokens: what rounding the
  // model's weights once more costs, so that weights which were rounded wrongly cannot pass.
  double mean_error;
};

std::ostream& operator<<(std::ostream& out, const WeightType& type) {
  return out << kernels::Traits(type.dtype).name;
}

// The golden tokens as a prompt's, so that all are told whatever this model would choose.
double MeanErrorOfGoldenTokens(Engine& engine) {
  double sum = 0;
  int32_t compared = 0;
  for (const GreedyCase& one : GreedyCases()) {
    std::vector<int32_t> ids = one.prompt;
    ids.insert(ids.end(), one.tokens.begin(), one.tokens.begin() + kGenerated);
    engine::Request request = RequestOf(ids, 0);
    request.logprobs.prompt_top = 0;
    const StreamOutput output = *ReadToEnd(**engine.Submit(std::move(request)));
    EXPECT_EQ(output.prompt_logprob_bits.size(), ids.size() - 1);
    for (int32_t i = 0; i < kGenerated; ++i) {
      const uint32_t bits = output.prompt_logprob_bits.at(one.prompt.size() - 1 + i);
      sum += std::abs(std::bit_cast<float>(bits) - one.logprobs[i]);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 16 * kGenerated);
  return sum / compared;
}

class SmolLm2ReproducibleWeights : public ::testing::TestWithParam<WeightType> {};

TEST_P(SmolLm2ReproducibleWeights, TokensAndLogprobBitsDoNotDependOnCompanyThreadsOrCuts) {
  const TemporaryDirectory directory;
  const std::string model = directory.path() + "/model.gguf";
  const absl::Status written = WriteRequantized(SmolLm2Path(), GetParam().dtype, model);
  ASSERT_TRUE(written.ok()) << written;
  const Arithmetic arithmetic{"f16", "auto"};
  const GoldenPrompts goldens;
  ASSERT_EQ(goldens.size(), 16u);
  auto engine = Start(model, arithmetic, {1, 512});
  ASSERT_NE(engine, nullptr);
  const std::vector<StreamOutput> alone = goldens.OneByOne(*engine);
  engine.reset();
  const Variant variant{2, 48};
  engine = Start(model, arithmetic, variant);
  ASSERT_NE(engine, nullptr);
  ExpectSame(goldens.InCompany(*engine), alone, variant, "in company");
  const double mean_error = MeanErrorOfGoldenTokens(*engine);
  std::printf("mean error of the golden tokens %.5f\n", mean_error);
  EXPECT_LT(mean_error, GetParam().mean_error);
}

// About one and a half times what was measured.
constexpr WeightType kWeightTypes[] = {
    {DType::kQ5_K, 0.4},   {DType::kF32, 0.001}, {DType::kF16, 0.002},  {DType::kBF16, 0.015},
    {DType::kQ8_0, 0.035}, {DType::kQ4_0, 1.1},  {DType::kQ4_1, 0.28},  {DType::kQ5_0, 0.4},
    {DType::kQ5_1, 0.45},  {DType::kQ4_K, 0.37}, {DType::kQ6_K, 0.075},
};
static_assert(std::size(kWeightTypes) == kernels::kDTypes.size());

// One of them in a slow build, where reproducible_test has all of a tiny model: to write and pack
// 134 million weights takes a minute there.
INSTANTIATE_TEST_SUITE_P(
    EveryType, SmolLm2ReproducibleWeights,
    ::testing::ValuesIn(kWeightTypes,
                        kWeightTypes + (kSlowBuildFactor == 1 ? std::size(kWeightTypes) : 1)),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace refrain::testing
