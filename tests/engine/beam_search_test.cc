#include "engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace refrain::engine {
namespace {

using Tokens = std::vector<int32_t>;

// A model over a few tokens: the logits after a sequence are a function of its tokens.
struct TinyModel {
  int32_t vocab_size;
  uint64_t seed;

  std::vector<double> Logprobs(const Tokens& sequence) const {
    uint64_t state = seed;
    for (const int32_t token : sequence) state = state * 1099511628211u + 7 + token;
    std::mt19937_64 random(state);
    std::normal_distribution<double> logit(0, 2);
    std::vector<double> values(static_cast<size_t>(vocab_size));
    double total = 0;
    for (double& value : values) {
      value = logit(random);
      total += std::exp(value);
    }
    for (double& value : values) value -= std::log(total);
    return values;
  }
};

struct Found {
  Tokens tokens;
  double sum;
  double score;
};

struct Setting {
  BeamParams params;
  int32_t width;
  int32_t max_tokens;
  Tokens end_tokens;
};

bool Ends(const Setting& setting, int32_t token) {
  return std::count(setting.end_tokens.begin(), setting.end_tokens.end(), token) > 0;
}

Tokens TokensOf(const BeamSearch::Hypothesis& hypothesis) {
  Tokens tokens;
  for (const BeamSearch::Step& step : hypothesis.steps) {
    tokens.push_back(static_cast<int32_t>(step.chosen.token));
  }
  return tokens;
}

// Drives the search as an engine does: keeps one sequence per beam, follows `parent`.
std::vector<Found> Search(const TinyModel& model, const Setting& setting,
                          int32_t* steps = nullptr) {
  BeamSearch search(setting.params, setting.width, setting.max_tokens);
  const auto wanted = static_cast<size_t>(BeamSearch::CandidatesPerBeam(
      setting.width, static_cast<int32_t>(setting.end_tokens.size())));
  std::vector<Tokens> beams = {{}};
  while (!search.over()) {
    std::vector<std::vector<BeamCandidate>> candidates;
    for (const Tokens& beam : beams) {
      const std::vector<double> logprobs = model.Logprobs(beam);
      auto& own = candidates.emplace_back();
      for (int32_t token = 0; token < model.vocab_size; ++token) {
        own.push_back({TokenId{token}, logprobs[static_cast<size_t>(token)], Ends(setting, token)});
      }
      std::sort(own.begin(), own.end(), [](const BeamCandidate& a, const BeamCandidate& b) {
        return a.logprob > b.logprob;
      });
      own.resize(std::min(own.size(), wanted));
    }
    search.Advance(candidates);
    std::vector<Tokens> next;
    for (const BeamSearch::Beam& beam : search.running()) {
      next.push_back(beams[static_cast<size_t>(beam.parent)]);
      next.back().push_back(static_cast<int32_t>(beam.token));
    }
    beams = std::move(next);
  }
  if (steps != nullptr) *steps = search.length();
  std::vector<Found> found;
  for (const BeamSearch::Hypothesis& one : search.Finished()) {
    found.push_back({TokensOf(one), one.sum, one.score});
    EXPECT_EQ(one.steps.back().chosen.ends, Ends(setting, found.back().tokens.back()));
  }
  return found;
}

// The same search written the slow way: every sequence in full, everything kept and sorted.
std::vector<Found> SlowSearch(const TinyModel& model, const Setting& setting, int32_t* steps) {
  const auto width = static_cast<size_t>(setting.width);
  const auto score = [&](double sum, size_t length) {
    return sum / std::pow(static_cast<double>(length), setting.params.length_penalty);
  };
  const auto by_sum = [](const Found& a, const Found& b) { return a.sum > b.sum; };
  const auto by_score = [](const Found& a, const Found& b) { return a.score > b.score; };
  std::vector<Found> open = {{{}, 0, 0}};
  std::vector<Found> closed;
  *steps = 0;
  while (true) {
    std::vector<Found> all;
    for (const Found& from : open) {
      const std::vector<double> logprobs = model.Logprobs(from.tokens);
      for (int32_t token = 0; token < model.vocab_size; ++token) {
        Found& one = all.emplace_back(from);
        one.tokens.push_back(token);
        one.sum += logprobs[static_cast<size_t>(token)];
        one.score = score(one.sum, one.tokens.size());
      }
    }
    std::stable_sort(all.begin(), all.end(), by_sum);
    ++*steps;
    open.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool at_end = *steps == setting.max_tokens;
      if (Ends(setting, all[i].tokens.back()) || at_end) {
        if (i < width) closed.push_back(all[i]);
      } else if (open.size() < width) {
        open.push_back(all[i]);
      }
    }
    std::stable_sort(closed.begin(), closed.end(), by_score);
    if (closed.size() > width) closed.resize(width);
    if (open.empty()) return closed;
    if (closed.size() < width) continue;
    if (setting.params.early_stopping || !(open[0].score > closed.back().score)) return closed;
  }
}

void ExpectSame(const std::vector<Found>& a, const std::vector<Found>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << "hypothesis " << i;
    EXPECT_NEAR(a[i].sum, b[i].sum, 1e-9);
    EXPECT_NEAR(a[i].score, b[i].score, 1e-9);
  }
}

TEST(BeamSearchTest, AgreesWithTheSlowSearch) {
  std::mt19937 random(7);
  int ended_early = 0;
  int full_length = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto pick = [&](int32_t low, int32_t high) {
      return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
    };
    const TinyModel model{pick(2, 12), random()};
    Setting setting{.width = pick(1, 6), .max_tokens = pick(1, 9)};
    setting.params.length_penalty = pick(-2, 4) * 0.5;
    setting.params.early_stopping = pick(0, 1) == 1;
    for (int32_t token = pick(0, 3); token > 0; --token) {
      setting.end_tokens.push_back(token % model.vocab_size);
    }
    int32_t steps = 0;
    int32_t slow_steps = 0;
    const std::vector<Found> found = Search(model, setting, &steps);
    ExpectSame(found, SlowSearch(model, setting, &slow_steps));
    EXPECT_EQ(steps, slow_steps);
    (steps < setting.max_tokens ? ended_early : full_length) += 1;
    if (HasFailure()) FAIL() << "case " << i;
  }
  EXPECT_GT(ended_early, 300);
  EXPECT_GT(full_length, 300);
}

// As wide as there are sequences, the search misses none.
TEST(BeamSearchTest, FindsTheBestOfAllSequencesWhenWideEnough) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const TinyModel model{4, seed};
    Setting setting{.width = 256, .max_tokens = 4, .end_tokens = {2}};
    setting.params.length_penalty = 0.5 * static_cast<double>(seed % 4);
    std::vector<Found> all;
    const std::function<void(const Found&)> extend = [&](const Found& from) {
      const std::vector<double> logprobs = model.Logprobs(from.tokens);
      for (int32_t token = 0; token < model.vocab_size; ++token) {
        Found one = from;
        one.tokens.push_back(token);
        one.sum += logprobs[static_cast<size_t>(token)];
        const auto length = static_cast<double>(one.tokens.size());
        one.score = one.sum / std::pow(length, setting.params.length_penalty);
        const bool whole = Ends(setting, token) || one.tokens.size() == 4;
        whole ? all.push_back(one) : extend(one);
      }
    };
    extend({{}, 0, 0});
    std::sort(all.begin(), all.end(),
              [](const Found& a, const Found& b) { return a.score > b.score; });
    ExpectSame(Search(model, setting), all);
  }
}

TEST(BeamSearchTest, OneBeamIsGreedy) {
  const TinyModel model{50, 3};
  const Setting setting{.width = 1, .max_tokens = 12};
  Tokens greedy;
  for (int i = 0; i < 12; ++i) {
    const std::vector<double> logprobs = model.Logprobs(greedy);
    greedy.push_back(static_cast<int32_t>(std::max_element(logprobs.begin(), logprobs.end()) -
                                          logprobs.begin()));
  }
  EXPECT_EQ(Search(model, setting).at(0).tokens, greedy);
}

BeamCandidate C(int32_t token, double logprob, bool ends = false) {
  return {TokenId{token}, logprob, ends};
}

TEST(BeamSearchTest, DropsAnEndThatRanksBehindTheWidth) {
  BeamSearch search({}, 2, 5);
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(1, -1), C(2, -2), C(0, -3, true)}});
  EXPECT_TRUE(search.Finished().empty());
  ASSERT_EQ(search.running().size(), 2u);
  // Rank 1 ends: it is kept, and two others run on.
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(3, -0.5), C(0, -0.6, true), C(4, -1.5)},
                                                         {C(5, -9), C(6, -9)}});
  ASSERT_EQ(search.Finished().size(), 1u);
  EXPECT_EQ(TokensOf(search.Finished()[0]), (Tokens{1, 0}));
  EXPECT_DOUBLE_EQ(search.Finished()[0].score, -1.6 / 2);
  EXPECT_TRUE(search.Finished()[0].steps.back().chosen.ends);
  ASSERT_EQ(search.running().size(), 2u);
  EXPECT_EQ(search.running()[1].token, TokenId{4});
  EXPECT_EQ(search.running()[1].parent, 0);
}

TEST(BeamSearchTest, BreaksTiesByParentThenToken) {
  BeamSearch search({}, 2, 5);
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(9, -1), C(4, -1), C(7, -1)}});
  EXPECT_EQ(search.running()[0].token, TokenId{4});
  EXPECT_EQ(search.running()[1].token, TokenId{7});
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(8, -1), C(9, -2)}, {C(1, -1)}});
  EXPECT_EQ(search.running()[0].parent, 0);
  EXPECT_EQ(search.running()[1].parent, 1);
}

// -1 after one token, -2 after two: the same per token.
TEST(BeamSearchTest, OfEqualScoresTheFirstToFinishIsBetter) {
  BeamSearch search({}, 2, 10);
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(5, -0.5), C(0, -1, true), C(6, -4)}});
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(0, -1.5, true), C(5, -6)}, {C(5, -6)}});
  ASSERT_EQ(search.Finished().size(), 2u);
  EXPECT_EQ(search.Finished()[0].steps.size(), 1u);
  EXPECT_EQ(search.Finished()[1].steps.size(), 2u);
}

// A hypothesis is finished at -0.1 per token; what runs can at best reach -1 now.
TEST(BeamSearchTest, StopsWhenTheBestRunningCannotBeatTheWorstFinished) {
  BeamSearch search({}, 1, 10);
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(0, -0.1, true), C(1, -1)}});
  EXPECT_TRUE(search.over());
  EXPECT_EQ(search.length(), 1);
}

// Finished at -3 and -1.1 per token, running at -1.
TEST(BeamSearchTest, OnlyEarlyStoppingEndsWhileTheBestRunningMayYetWin) {
  for (const bool early_stopping : {false, true}) {
    BeamSearch search({.early_stopping = early_stopping}, 2, 10);
    search.Advance(std::vector<std::vector<BeamCandidate>>{{C(1, -1), C(0, -3, true), C(2, -4)}});
    EXPECT_FALSE(search.over());
    search.Advance(std::vector<std::vector<BeamCandidate>>{{C(3, -1), C(0, -1.2, true), C(4, -5)},
                                                           {C(3, -9), C(4, -9)}});
    EXPECT_EQ(search.Finished().size(), 2u);
    EXPECT_EQ(search.over(), early_stopping);
  }
}

TEST(BeamSearchTest, IgnoresImpossibleTokens) {
  const double infinity = std::numeric_limits<double>::infinity();
  BeamSearch search({}, 2, 3);
  search.Advance(std::vector<std::vector<BeamCandidate>>{
      {C(1, -infinity), C(2, -1), C(3, std::nan("")), C(4, -infinity, true)}});
  EXPECT_TRUE(search.Finished().empty());
  ASSERT_EQ(search.running().size(), 1u);
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(1, -infinity)}});
  EXPECT_TRUE(search.over());  // nothing can follow
}

// The token of each step was a candidate of the beam that `parent` names.
TEST(BeamSearchTest, TellsWhichBeamEachTokenCameFrom) {
  BeamSearch search({}, 2, 2);
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(1, -1), C(2, -1.5)}});
  search.Advance(std::vector<std::vector<BeamCandidate>>{{C(1, -5), C(2, -6)}, {C(7, -1)}});
  ASSERT_TRUE(search.over());
  EXPECT_EQ(TokensOf(search.Finished()[0]), (Tokens{2, 7}));
  EXPECT_EQ(search.Finished()[0].steps[0].parent, 0);
  EXPECT_EQ(search.Finished()[0].steps[1].parent, 1);
}

}  // namespace
}  // namespace refrain::engine
