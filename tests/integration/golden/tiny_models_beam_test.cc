// Beam search over tiny random models, with and without early ends, against what transformers'
// generate() finds: the sequences, their order and their scores.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/beam_group.h"
#include "engine/sampler.h"
#include "tests/support/model_harness.h"

namespace refrain::testing {
namespace {

using engine::BeamGroup;
using engine::BeamSearch;
using engine::TokenId;
using nlohmann::json;

using Tokens = std::vector<int32_t>;

// Of a log-probability; transformers computes some of it in f32 (tests/data/tiny-models/SOURCE.md).
constexpr double kLimit = 5e-4;

std::unique_ptr<ModelHarness> Load(const std::string& model) {
  HarnessOptions options;
  options.backend.kind = "cpu";
  options.backend.compute_dtype = "f32";
  options.kv_dtype = "f32";
  auto harness = ModelHarness::Load("tests/data/tiny-models/" + model, options);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return harness.ok() ? *std::move(harness) : nullptr;
}

// The best tokens behind these.
engine::SampledToken BestBehind(ModelHarness& model, const Tokens& ids, int32_t count) {
  engine::SampledToken row;
  model.Start(ids, static_cast<int32_t>(ids.size()) - 1,
              [&](int32_t, std::span<const float> logits) {
                row.top = engine::ComputeLogprobs(logits, TokenId{0}, count).top;
              });
  return row;
}

std::vector<BeamSearch::Hypothesis> Search(ModelHarness& model, const json& one) {
  engine::Request request;
  request.n = one["beams"];
  request.beam = engine::BeamParams{.length_penalty = one["length_penalty"],
                                    .early_stopping = one["early_stopping"]};
  std::vector<TokenId> ends;
  for (const int32_t id : one["end_tokens"].get<Tokens>()) ends.push_back(TokenId{id});
  const engine::StopParams stop{.min_tokens = one["min_tokens"], .stop_token_ids = std::move(ends)};
  BeamGroup group(request, std::make_shared<const engine::StopRules>(
                               stop, one["max_tokens"].get<int32_t>(), std::vector<TokenId>{}));
  std::vector<Tokens> beams = {one["prompt"].get<Tokens>()};
  while (!group.over()) {
    for (size_t i = 0; i < beams.size(); ++i) {
      group.Deliver(static_cast<int32_t>(i), BestBehind(model, beams[i], group.top_logprobs()));
    }
    std::vector<Tokens> next;
    for (const BeamSearch::Beam& beam : group.Advance()) {
      next.push_back(beams[static_cast<size_t>(beam.parent)]);
      next.back().push_back(static_cast<int32_t>(beam.token));
    }
    beams = std::move(next);
  }
  return group.Best(request.n);
}

TEST(TinyModelsBeams, FindWhatTransformersFinds) {
  const json cases = json::parse(std::ifstream("tests/data/selection-golden/beams.json"))["cases"];
  ASSERT_GE(cases.size(), 40u);
  std::map<std::string, std::unique_ptr<ModelHarness>> models;
  for (const json& one : cases) {
    json options = one;
    options.erase("sequences");
    SCOPED_TRACE(options.dump());
    std::unique_ptr<ModelHarness>& model = models[one["model"]];
    if (model == nullptr) model = Load(one["model"]);
    ASSERT_NE(model, nullptr);
    const std::vector<BeamSearch::Hypothesis> found = Search(*model, one);
    ASSERT_EQ(found.size(), one["sequences"].size());
    for (size_t i = 0; i < found.size(); ++i) {
      Tokens tokens;
      for (const BeamSearch::Step& step : found[i].steps) {
        tokens.push_back(static_cast<int32_t>(step.chosen.token));
      }
      const json& expected = one["sequences"][i];
      EXPECT_EQ(tokens, expected["tokens"].get<Tokens>()) << "sequence " << i;
      const auto length = static_cast<double>(tokens.size());
      const double norm = std::pow(length, one["length_penalty"].get<double>());
      EXPECT_NEAR(found[i].score, expected["score"].get<double>(), kLimit * length / norm + 1e-5)
          << "sequence " << i;
    }
  }
}

}  // namespace
}  // namespace refrain::testing
