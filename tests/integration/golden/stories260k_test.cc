// stories260K from its Hugging Face folder, in f32, on every back end: the greedy text that
// llama2.c documents, and logits of an independent float64 implementation.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "engine/text/create_tokenizer.h"
#include "engine/text/detokenizer.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/model_harness.h"

namespace refrain::testing {
namespace {

using nlohmann::json;

const std::string kFolder = "tests/data/stories260K/";

std::string ReadFile(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class Stories260K : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HarnessOptions options;
    options.backend.kind = GetParam();
    options.backend.compute_dtype = "f32";
    options.kv_dtype = "f32";
    std::unique_ptr<kernels::Backend> cuda = MakeCudaBackend(GetParam());
    auto harness = cuda == nullptr ? ModelHarness::Load(kFolder + "hf", options)
                                   : ModelHarness::LoadOn(std::move(cuda), kFolder + "hf", options);
    ASSERT_TRUE(harness.ok()) << harness.status();
    harness_ = *std::move(harness);
  }

  // The emulated device takes a minute for what a GPU does in the blink of an eye.
  size_t Compared(size_t tokens) const {
    return GetParam() == "cuda_emulated" ? std::min<size_t>(tokens, 12) : tokens;
  }

  std::vector<int32_t> Greedy(std::vector<int32_t> prompt, size_t count) {
    std::vector<int32_t> generated;
    const auto choose = [&](int32_t, std::span<const float> logits) {
      generated.push_back(static_cast<int32_t>(engine::ArgMax(logits)));
    };
    harness_->Start(prompt, static_cast<int32_t>(prompt.size()) - 1, choose);
    while (generated.size() < count) {
      const int32_t token = generated.back();
      harness_->Append({&token, 1}, 0, choose);
    }
    return generated;
  }

  std::unique_ptr<ModelHarness> harness_;
};

TEST_P(Stories260K, GreedyIdsEqualTheReference) {
  const json reference = json::parse(ReadFile("reference_values.json"));
  ASSERT_EQ(reference["greedy"].size(), 2u);
  for (const json& c : reference["greedy"]) {
    auto expected = c["generated_ids"].get<std::vector<int32_t>>();
    expected.resize(Compared(expected.size()));
    EXPECT_EQ(Greedy(c["prompt_ids"].get<std::vector<int32_t>>(), expected.size()), expected)
        << c["prompt"];
  }
}

TEST_P(Stories260K, GreedyTextIsTheDocumentedOne) {
  const std::string expected = ReadFile("expected_greedy.txt");
  auto source = harness_->source().ReadTokenizer();
  ASSERT_TRUE(source.ok()) << source.status();
  auto tokenizer = engine::CreateSentencePieceTokenizer(source->sentencepiece_model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  engine::Detokenizer detokenizer(tokenizer->get(), {.drop_leading_space = true});
  std::string text;
  const size_t tokens = Compared(256);
  for (const int32_t id : Greedy({1}, tokens)) {
    text += detokenizer.Append(static_cast<engine::TokenId>(id));
  }
  ASSERT_GT(expected.size(), 500u);
  std::string trimmed = expected.substr(0, expected.find_last_not_of('\n') + 1);
  if (tokens < 256) trimmed.resize(std::min(trimmed.size(), text.size()));
  ASSERT_GT(trimmed.size(), tokens);
  EXPECT_EQ(text.substr(0, trimmed.size()), trimmed);
}

// Positions that begin at 0, at 100, and with a gap.
TEST_P(Stories260K, LogitsAreWithinAThousandthOfFloat64) {
  const json reference = json::parse(ReadFile("reference_values.json"));
  ASSERT_EQ(reference["logits"].size(), 3u);
  for (const json& c : reference["logits"]) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    size_t compared = 0;
    const auto positions = c["positions"].get<std::vector<int32_t>>();
    harness_->StartAt(ids, positions, 0, [&](int32_t index, std::span<const float> logits) {
      EXPECT_NEAR(engine::LogSumExp(logits), c["logsumexp_per_position"][index].get<double>(),
                  1e-3);
      if (index + 1 < static_cast<int32_t>(ids.size())) return;
      for (size_t i = 0; i < logits.size(); ++i, ++compared) {
        EXPECT_NEAR(logits[i], c["last_logits"][i].get<double>(), 1e-3) << c["name"] << " " << i;
      }
    });
    EXPECT_EQ(compared, 512u);
  }
}

std::vector<std::string> AllBackends() {
  std::vector<std::string> names = CudaBackendNames();
  names.insert(names.end(), {"cpu", "reference"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(Backends, Stories260K, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace refrain::testing
