// What is sampled, against distributions that were computed in float64 in the order of vLLM's
// sampler: no token outside of them, and of each as many as its probability says.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampler.h"
#include "engine/stop_criteria.h"

namespace refrain::engine {
namespace {

using nlohmann::json;

constexpr TokenId kEnd{2};
constexpr int kDraws = 20000;

std::vector<TokenId> Tokens(const json& ids) {
  std::vector<TokenId> tokens;
  for (const json& id : ids) tokens.push_back(TokenId{id.get<int32_t>()});
  return tokens;
}

SamplingParams ReadParams(const json& in) {
  SamplingParams params;
  params.temperature = in.value("temperature", 1.0);
  params.top_p = in.value("top_p", 1.0);
  params.min_p = in.value("min_p", 0.0);
  params.top_k = in.value("top_k", 0);
  params.repetition_penalty = in.value("repetition_penalty", 1.0);
  params.presence_penalty = in.value("presence_penalty", 0.0);
  params.frequency_penalty = in.value("frequency_penalty", 0.0);
  std::vector<std::pair<TokenId, float>> biases;
  const json wanted_biases = in.value("logit_bias", json::object());
  for (const auto& [id, bias] : wanted_biases.items()) {
    biases.emplace_back(TokenId{std::stoi(id)}, bias.get<float>());
  }
  params.logit_bias = std::move(biases);
  params.allowed_tokens = Tokens(in.value("allowed_token_ids", json::array()));
  std::vector<std::vector<TokenId>> banned;
  for (const json& ids : in.value("banned_sequences", json::array())) banned.push_back(Tokens(ids));
  params.banned_sequences = std::move(banned);
  return params;
}

// How often each token is chosen behind the row's output, a fresh seed each time.
std::map<int32_t, int> Frequencies(const json& params, const json& row) {
  const StopRules rules({.min_tokens = params.value("min_tokens", 0),
                         .ignore_eos = params.value("ignore_eos", false),
                         .stop_token_ids = Tokens(params.value("stop_token_ids", json::array()))},
                        /*max_tokens=*/100, std::vector<TokenId>{kEnd});
  const SamplingParams sampling = ReadParams(params);
  const std::vector<TokenId> prompt = Tokens(row["prompt"]), output = Tokens(row["output"]);
  const auto logits = row["logits"].get<std::vector<float>>();
  std::map<int32_t, int> counts;
  for (int draw = 0; draw < kDraws; ++draw) {
    SamplerState sampler(sampling, 1000 + static_cast<uint64_t>(draw), prompt, rules.min_tokens,
                         rules.late_tokens);
    for (const TokenId token : output) sampler.Count(token);
    std::vector<float> scratch = logits;
    ++counts[static_cast<int32_t>(sampler.Choose(scratch))];
  }
  return counts;
}

// Pearson's statistic over the tokens that are expected often enough, the others as one; it has at
// most as many degrees of freedom as told.
std::pair<double, int> ChiSquare(const std::map<int32_t, double>& expected,
                                 std::map<int32_t, int> counts) {
  double sum = 0, rare_expected = 0, rare_seen = 0;
  int classes = 0;
  const auto add = [&](double wanted, double seen) {
    sum += (seen - wanted) * (seen - wanted) / wanted;
    ++classes;
  };
  for (const auto& [token, probability] : expected) {
    const double wanted = probability * kDraws;
    if (wanted >= 5) {
      add(wanted, counts[token]);
    } else {
      rare_expected += wanted;
      rare_seen += counts[token];
    }
  }
  if (rare_expected >= 5) add(rare_expected, rare_seen);
  return {sum, classes - 1};
}

TEST(SamplerGolden, ChoosesFromTheDistributionThatTheParametersAskFor) {
  const json golden = json::parse(std::ifstream("tests/data/selection-golden/sampling.json"));
  ASSERT_GE(golden["cases"].size(), 60u);
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE("row " + one["row"].dump() + " " + one["params"].dump());
    std::map<int32_t, double> expected;
    for (size_t i = 0; i < one["ids"].size(); ++i) {
      expected[one["ids"][i].get<int32_t>()] = one["probabilities"][i].get<double>();
    }
    const auto counts = Frequencies(one["params"], golden["rows"][one["row"].get<size_t>()]);
    for (const auto& [token, count] : counts) {
      EXPECT_TRUE(expected.contains(token)) << "token " << token << " came " << count << " times";
    }
    const auto [statistic, freedom] = ChiSquare(expected, counts);
    // Five standard deviations; with few degrees of freedom the tail is longer.
    EXPECT_LE(statistic, freedom + 5 * std::sqrt(2.0 * freedom) + 12);
  }
}

}  // namespace
}  // namespace refrain::engine
