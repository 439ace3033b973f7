// Tiny random models as transformers saves them, each with a few of the family's variants (RoPE
// scalings, sliding windows, head and matrix sizes, element types, shards, old and new spellings of
// config.json): log-probabilities and greedy tokens as transformers computes them in float64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "engine/sampler.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/model_harness.h"

namespace refrain::testing {
namespace {

using nlohmann::json;

const std::string kFolder = "tests/data/tiny-models/";

// A model: its folder, or NAME.gguf of it, or the first of its parts, in the folder that
// REFRAIN_TINY_MODELS_GGUF names (made by tests/data/tiny-models/convert_tiny_models.py with
// llama.cpp's converter).
std::string PathOf(const std::string& name) {
  const char* converted = std::getenv("REFRAIN_TINY_MODELS_GGUF");
  if (converted == nullptr) return kFolder + name;
  for (const auto& entry : std::filesystem::directory_iterator(converted)) {
    const std::string found = entry.path().filename().string();
    if (found.starts_with(name + "-00001-of-")) return entry.path().string();
  }
  return std::string(converted) + "/" + name + ".gguf";
}

// Behind a margin below this the arithmetic may choose another token.
constexpr double kLeastMargin = 0.01;

const json& Expected() {
  static const json* const expected =
      new json(json::parse(std::ifstream(kFolder + "expected.json")));
  return *expected;
}

// An arithmetic, and how far a log-probability of the ten best tokens may be from the golden one.
struct Arithmetic {
  const char* name;
  const char* backend;
  const char* compute_dtype;
  double limit;
  bool reproducible = false;
  friend void PrintTo(const Arithmetic& arithmetic, std::ostream* out) { *out << arithmetic.name; }
};

// transformers computes angles, norms and softmax in f32: alone that is up to 2.5e-4 (SOURCE.md).
constexpr double kF32Limit = 5e-4;

class TinyModels : public ::testing::TestWithParam<std::tuple<std::string, Arithmetic>> {
 protected:
  void SetUp() override {
    const auto& [model, arithmetic] = GetParam();
    HarnessOptions options;
    options.backend.kind = arithmetic.backend;
    options.backend.compute_dtype = arithmetic.compute_dtype;
    options.kv_dtype = arithmetic.compute_dtype;
    options.reproducible = arithmetic.reproducible;
    std::unique_ptr<kernels::Backend> cuda = MakeCudaBackend(arithmetic.backend);
    auto harness = cuda == nullptr ? ModelHarness::Load(PathOf(model), options)
                                   : ModelHarness::LoadOn(std::move(cuda), PathOf(model), options);
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = *std::move(harness);
  }

  // The prompts of the model. The emulated device takes a minute for what a GPU does in the blink
  // of an eye: it computes those of at most `emulated_tokens`.
  std::vector<json> Cases(size_t emulated_tokens = 5) const {
    std::vector<json> cases;
    for (const json& c : Expected().at(std::get<0>(GetParam()))) {
      if (IsEmulated() && c["prompt"].size() > emulated_tokens) continue;
      cases.push_back(c);
    }
    return cases;
  }
  bool IsEmulated() const {
    return std::string(std::get<1>(GetParam()).backend) == "cuda_emulated";
  }
  bool IsF32() const { return std::string(std::get<1>(GetParam()).compute_dtype) == "f32"; }
  double Limit() const { return std::get<1>(GetParam()).limit; }

  // Computes a prompt in pieces of the lengths of `pieces`, in turn, and compares what is expected
  // of its tokens. Returns the greatest difference.
  double CompareTop(const json& c, const std::vector<size_t>& pieces) {
    std::map<int32_t, const json*> wanted;
    for (const json& top : c["top"]) wanted[top["position"].get<int32_t>()] = &top;
    double worst = 0;
    size_t compared = 0;
    const auto compare = [&](int32_t index, std::span<const float> logits) {
      const auto found = wanted.find(index);
      if (found == wanted.end()) return;
      const double sum = engine::LogSumExp(logits);
      const json& top = *found->second;
      for (size_t i = 0; i < top["ids"].size(); ++i, ++compared) {
        const double ours = logits[top["ids"][i].get<size_t>()] - sum;
        const double difference = std::abs(ours - top["logprobs"][i].get<double>());
        worst = std::max(worst, std::isnan(ours) ? INFINITY : difference);
      }
    };
    const auto prompt = c["prompt"].get<std::vector<int32_t>>();
    std::span<const int32_t> left(prompt);
    for (size_t piece = 0; !left.empty(); ++piece) {
      const auto next = left.first(std::min(left.size(), pieces[piece % pieces.size()]));
      if (piece == 0) {
        harness_->Start(next, 0, compare);
      } else {
        harness_->Append(next, 0, compare);
      }
      left = left.subspan(next.size());
    }
    EXPECT_EQ(compared, 10 * c["top"].size());
    return worst;
  }

  std::unique_ptr<ModelHarness> harness_;
};

TEST_P(TinyModels, LogprobsAreThoseOfTransformers) {
  for (const json& c : Cases(/*emulated_tokens=*/70)) {
    const double worst = CompareTop(c, {c["prompt"].size()});
    std::printf("%zu tokens: greatest difference %.6f\n", c["prompt"].size(), worst);
    EXPECT_LT(worst, Limit()) << c["prompt"].size() << " tokens";
  }
}

// Pieces shorter and longer than a chunk, a window, and what a kernel takes at a time.
TEST_P(TinyModels, PromptsCutInPiecesGiveTheSame) {
  for (const json& c : Cases()) {
    for (const std::vector<size_t>& pieces :
         {std::vector<size_t>{1, 3, 17}, std::vector<size_t>{64}, std::vector<size_t>{97, 2}}) {
      EXPECT_LT(CompareTop(c, pieces), Limit())
          << c["prompt"].size() << " tokens in pieces of " << pieces.front();
    }
  }
}

TEST_P(TinyModels, GreedyTokensAreThoseOfTransformers) {
  if (!IsF32()) GTEST_SKIP() << "bf16 may choose another token at any margin of these models";
  size_t compared = 0, total = 0;
  for (const json& c : Cases()) {
    const auto prompt = c["prompt"].get<std::vector<int32_t>>();
    const auto expected = c["greedy"]["ids"].get<std::vector<int32_t>>();
    const auto margins = c["greedy"]["margins"].get<std::vector<double>>();
    std::vector<int32_t> ours;
    std::vector<double> logprobs;
    const auto choose = [&](int32_t, std::span<const float> logits) {
      ours.push_back(static_cast<int32_t>(engine::ArgMax(logits)));
      logprobs.push_back(logits[ours.back()] - engine::LogSumExp(logits));
    };
    harness_->Start(prompt, static_cast<int32_t>(prompt.size()) - 1, choose);
    while (ours.size() < expected.size()) {
      const int32_t token = ours.back();
      harness_->Append({&token, 1}, 0, choose);
    }
    total += expected.size();
    for (size_t i = 0; i < expected.size() && margins[i] >= kLeastMargin; ++i, ++compared) {
      ASSERT_EQ(ours[i], expected[i]) << prompt.size() << " tokens, answer's token " << i;
      EXPECT_NEAR(logprobs[i], c["greedy"]["logprobs"][i].get<double>(), Limit());
    }
  }
  std::printf("compared %zu of %zu tokens\n", compared, total);
  EXPECT_GE(compared * 5, total * 4);
}

std::vector<std::string> AllModels() {
  std::vector<std::string> names;
  for (const auto& [name, cases] : Expected().items()) {
    // Not every model can be converted; without any the suite is empty, which fails.
    if (std::filesystem::exists(PathOf(name))) names.push_back(name);
  }
  return names;
}

std::vector<Arithmetic> AllArithmetics() {
  std::vector<Arithmetic> all = {{"cpu_f32", "cpu", "f32", kF32Limit},
                                 {"cpu_f32_reproducible", "cpu", "f32", kF32Limit, true},
                                 {"cpu_bf16", "cpu", "bf16", 0.6},
                                 {"reference_f32", "reference", "f32", kF32Limit}};
  for (const std::string& cuda : CudaBackendNames()) {
    if (cuda == "cuda") all.push_back({"cuda_f32", "cuda", "f32", kF32Limit});
    if (cuda == "cuda_emulated") {
      all.push_back({"cuda_emulated_f32", "cuda_emulated", "f32", kF32Limit});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, TinyModels,
                         ::testing::Combine(::testing::ValuesIn(AllModels()),
                                            ::testing::ValuesIn(AllArithmetics())),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace refrain::testing
