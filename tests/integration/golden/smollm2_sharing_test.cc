// Shared prefixes in a real model, engine.reproducible = off: sixteen requests that begin alike
// prefill and decode side by side in the whole engine, so that their rows attend to the common
// chunks chunk-first (two-phase) or each in its own way (paged), and every log-probability they are
// told is compared with that of an f32 model which computes each of them alone. (smollm2_f32_test
// compares that one with the golden values.)

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "kernels/worse.h"
#include "tests/integration/golden/golden_checks.h"
#include "tests/support/stream_output.h"
#include "tests/support/token_prompt.h"

namespace refrain::testing {
namespace {

// Not a multiple of the chunk's 64 tokens.
constexpr int32_t kCommonTokens = 150;
constexpr int32_t kForced = 32;     // golden tokens of each request that are part of its prompt
constexpr int32_t kGenerated = 32;  // greedily, behind them
constexpr int32_t kTop = 5;         // tokens told at each step

struct Setting {
  std::string name;
  std::string compute_dtype;
  std::string kv_dtype;
  // Mean errors of log-probabilities: of all prompts' tokens, of one prompt's, of what one request
  // generated.
  double most_prefill_error, most_prefill_error_of_one, most_decode_error_of_one;
  // The most probable token's log-probability less that of the token which the f32 model would
  // choose, wherever tokens follow that a greedy search has found.
  double most_deficit;
  engine::AttentionModeOption attention_mode = engine::AttentionModeOption::kTwoPhase;
  bool of_prompts = true;  // log-probabilities; else most rows of prompts choose nothing
};

struct Told {
  std::vector<int32_t> ids;                            // prompt, then what was generated
  std::vector<double> logprobs;                        // of ids[1..]
  std::vector<std::vector<engine::TokenLogprob>> top;  // of the same, best first
  engine::Usage usage;
};

std::vector<std::vector<int32_t>> Prompts() {
  std::vector<int32_t> common = LogitsPrompt("c4 300 (echo)");
  common.resize(kCommonTokens);
  std::vector<std::vector<int32_t>> prompts;
  for (const GreedyCase& one : GreedyCases()) {
    std::vector<int32_t>& prompt = prompts.emplace_back(common);
    prompt.insert(prompt.end(), one.prompt.begin(), one.prompt.end());
    prompt.insert(prompt.end(), one.tokens.begin(), one.tokens.begin() + kForced);
  }
  return prompts;
}

engine::Request GreedyRequest(const std::vector<int32_t>& prompt, bool of_prompt) {
  engine::Request request;
  request.prompt = PromptOf(prompt);
  request.sampling.temperature = 0;
  request.stop.max_tokens = kGenerated;
  request.stop.ignore_eos = true;
  request.logprobs.top = kTop;
  if (of_prompt) request.logprobs.prompt_top = kTop;
  return request;
}

// Behind `begin`, which is not told.
Told ReadAll(engine::TokenStream& stream, std::vector<int32_t> begin) {
  const engine::StreamBatch all = ReadBatches(stream);
  EXPECT_TRUE(all.status.ok()) << all.status;
  Told told{.ids = std::move(begin), .usage = all.usage};
  for (const engine::TokenEvent& event : all.tokens) {
    if (!told.ids.empty()) {
      EXPECT_TRUE(event.logprob.has_value()) << "token " << told.ids.size();
      told.logprobs.push_back(event.logprob.has_value() ? event.logprob->logprob : NAN);
      told.top.push_back(event.top);
    }
    told.ids.push_back(static_cast<int32_t>(event.token));
  }
  return told;
}

// All at once; the results in the order of the prompts.
std::vector<Told> RunTogether(const Setting& setting,
                              const std::vector<std::vector<int32_t>>& prompts) {
  engine::EngineOptions options;
  options.model.path = SmolLm2Path();
  options.backend.compute_dtype = setting.compute_dtype;
  options.kv_cache.dtype = setting.kv_dtype;
  options.attention_mode = setting.attention_mode;
  options.kv_cache.memory_bytes = 256 << 20;
  options.max_context_tokens = 1024;
  auto engine = engine::CreateEngine(options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status();
    return {};
  }
  std::vector<std::shared_ptr<engine::TokenStream>> streams;
  for (const auto& prompt : prompts) {
    streams.push_back(*(*engine)->Submit(GreedyRequest(prompt, setting.of_prompts)));
  }
  std::vector<Told> told;
  for (size_t i = 0; i < streams.size(); ++i) {
    told.push_back(ReadAll(*streams[i], setting.of_prompts ? std::vector<int32_t>() : prompts[i]));
  }
  // One after the other they would have taken a step for each generated token.
  EXPECT_LT((*engine)->stats().steps_total, static_cast<int64_t>(prompts.size()) * kGenerated / 4);
  return told;
}

// What the f32 model says of ids[kCommonTokens..].
struct InF32 {
  std::vector<double> logprobs;
  std::vector<int32_t> best;  // what it would choose there
};

// `harness` has computed what is common.
InF32 LogprobsInF32(ModelHarness& harness, const std::vector<int32_t>& ids) {
  harness.Rewind(kCommonTokens - 1);
  InF32 said;
  harness.Append(std::span(ids).subspan(kCommonTokens - 1, ids.size() - kCommonTokens), 0,
                 [&](int32_t index, std::span<const float> logits) {
                   said.logprobs.push_back(logits[static_cast<size_t>(ids[index + 1])] -
                                           engine::LogSumExp(logits));
                   said.best.push_back(static_cast<int32_t>(engine::ArgMax(logits)));
                 });
  return said;
}

// By how much `token` is behind the best; NaN where it is not among those told.
double Deficit(std::span<const engine::TokenLogprob> top, int32_t token) {
  for (const engine::TokenLogprob& one : top) {
    if (static_cast<int32_t>(one.token) == token) return top.front().logprob - one.logprob;
  }
  return NAN;
}

double MeanError(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

class SmolLm2Sharing : public ::testing::TestWithParam<Setting> {
 protected:
  static void SetUpTestSuite() {
    HarnessOptions options;
    options.backend.compute_dtype = "f32";
    options.kv_dtype = "f32";
    auto harness = ModelHarness::Load(SmolLm2Path(), options);
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = std::move(*harness).release();
    harness_->Start(std::span(Prompts().front()).first(kCommonTokens), kCommonTokens,
                    [](int32_t, std::span<const float>) {});
  }
  static void TearDownTestSuite() { delete std::exchange(harness_, nullptr); }

  static ModelHarness* harness_;
};
ModelHarness* SmolLm2Sharing::harness_ = nullptr;

TEST_P(SmolLm2Sharing, LogprobsOfRequestsThatBeginAlikeAreThoseOfAnF32ModelAlone) {
  const auto prompts = Prompts();
  const std::vector<Told> told = RunTogether(GetParam(), prompts);
  ASSERT_EQ(told.size(), 16u);
  double prefill_sum = 0, worst_prefill = 0, worst_decode = 0, worst_deficit = 0;
  int32_t compared = 0, prefilled = 0;
  for (size_t i = 0; i < told.size(); ++i) {
    const Told& one = told[i];
    ASSERT_EQ(one.ids.size(), prompts[i].size() + kGenerated);
    ASSERT_TRUE(std::equal(prompts[i].begin(), prompts[i].end(), one.ids.begin()));
    EXPECT_GE(one.usage.cached_tokens, i == 0 ? 0 : 128);  // whole chunks at least
    const InF32 expected = LogprobsInF32(*harness_, one.ids);
    const std::span<const double> got =
        std::span(one.logprobs).subspan(GetParam().of_prompts ? kCommonTokens - 1 : 0);
    const std::span<const double> wanted =
        std::span(expected.logprobs)
            .last(GetParam().of_prompts ? expected.logprobs.size() : kGenerated);
    ASSERT_EQ(got.size(), wanted.size());
    const int32_t greedy = kGenerated + (GetParam().of_prompts ? kForced : 0);
    for (int32_t j = 1; j <= greedy; ++j) {
      const double deficit =
          Deficit(one.top[one.top.size() - j], expected.best[expected.best.size() - j]);
      worst_deficit = kernels::Worse(worst_deficit, deficit);
    }
    const size_t prefill = wanted.size() - kGenerated;
    if (prefill > 0) {
      const double error = MeanError(got.first(prefill), wanted.first(prefill));
      worst_prefill = kernels::Worse(worst_prefill, error);
      prefill_sum += error * static_cast<double>(prefill);
      prefilled += static_cast<int32_t>(prefill);
    }
    worst_decode =
        kernels::Worse(worst_decode, MeanError(got.subspan(prefill), wanted.subspan(prefill)));
    compared += static_cast<int32_t>(got.size());
  }
  const double prefill_error = prefilled > 0 ? prefill_sum / prefilled : 0;
  std::printf(
      "%d log-probabilities; mean error: prefill %.5f, of the worst request %.5f, decode, of "
      "the worst request %.5f; greatest deficit %.4f\n",
      compared, prefill_error, worst_prefill, worst_decode, worst_deficit);
  EXPECT_EQ(prefilled > 0, GetParam().of_prompts);
  EXPECT_LE(prefill_error, GetParam().most_prefill_error);
  EXPECT_LE(worst_prefill, GetParam().most_prefill_error_of_one);
  EXPECT_LT(worst_decode, GetParam().most_decode_error_of_one);
  EXPECT_LT(worst_deficit, GetParam().most_deficit);
}

// 15 bits in all rows and what is served, without and with bf16 dot instructions, and every
// sequence reading its own way. The limits: three times what was measured for 15 bits over f16 KV;
// else those of the README beside the golden data for bf16 (teacher-forced, and of one prompt as
// served echo). The common tokens' rounding is in all sixteen prompts, and which of them suffers
// most, and how much, is a draw: over sixteen other beginnings the worst was 0.034 to 0.063 at
// every instruction-set level alike, the mean of all 0.021 to 0.032 (docs/results/accuracy.md). So
// it is the mean that the tighter limit is for. A deficit's limit is that which the kind of
// arithmetic has in smollm2_quantized_test (15 bits 0.01, bf16 the README's 0.4) or, over fp8 KV,
// in smollm2_fp8_test.
INSTANTIATE_TEST_SUITE_P(
    Settings, SmolLm2Sharing,
    ::testing::Values(Setting{"F16Kv", "quantized", "f16", 0.004, 0.004, 0.004, 0.01},
                      Setting{"Bf16Kv", "quantized", "bf16", 0.05, 0.05, 0.05, 0.4},
                      Setting{"F16KvPaged", "quantized", "f16", 0.004, 0.004, 0.004, 0.01,
                              engine::AttentionModeOption::kPaged},
                      Setting{"AsServedBf16Kv", "auto", "bf16", 0.04, 0.1, 0.05, 0.4},
                      Setting{"AsServedFp8Kv", "auto", "fp8_e4m3", 0.25, 0.25, 0.25, 1.5},
                      Setting{.name = "AsServedWithoutPromptLogprobs",
                              .compute_dtype = "auto",
                              .kv_dtype = "f16",
                              .most_prefill_error = 0,
                              .most_prefill_error_of_one = 0,
                              .most_decode_error_of_one = 0.05,
                              .most_deficit = 0.4,
                              .of_prompts = false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace refrain::testing
