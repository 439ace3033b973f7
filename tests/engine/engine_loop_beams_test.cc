// Beam search and best_of in the engine loop, against searches written down directly.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <vector>

#include "engine/sampler.h"
#include "tests/support/fake_model_runner.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::FakeKvCell;
using ::refrain::testing::HashLogits;
using ::refrain::testing::LetterVocabulary;
using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

using Tokens = std::vector<int32_t>;

struct Scored {
  Tokens tokens;  // generated
  double sum = 0;
  double score = 0;
};

// The search in full: every beam's whole text, every continuation, sorted.
std::vector<Scored> SlowSearch(const Tokens& prompt, int32_t width, int32_t max_tokens,
                               double length_penalty, int32_t end_token) {
  const auto vocab_size = static_cast<int32_t>(LetterVocabulary().size());
  const auto w = static_cast<size_t>(width);
  std::vector<Scored> open(1);
  std::vector<Scored> closed;
  for (int32_t length = 1;; ++length) {
    std::vector<Scored> all;
    for (const Scored& beam : open) {
      std::vector<FakeKvCell> history;
      for (const Tokens* part : {&prompt, &beam.tokens}) {
        for (const int32_t token : *part) {
          history.push_back({token, static_cast<int32_t>(history.size())});
        }
      }
      const std::vector<float> logits = HashLogits(history, vocab_size);
      const double norm = LogSumExp(logits);
      for (int32_t token = 0; token < vocab_size; ++token) {
        Scored& next = all.emplace_back(beam);
        next.tokens.push_back(token);
        next.sum += static_cast<float>(logits[static_cast<size_t>(token)] - norm);
        next.score = next.sum / std::pow(length, length_penalty);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Scored& a, const Scored& b) { return a.sum > b.sum; });
    open.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].tokens.back() == end_token || length == max_tokens) {
        if (i < w) closed.push_back(all[i]);
      } else if (open.size() < w) {
        open.push_back(all[i]);
      }
    }
    std::stable_sort(closed.begin(), closed.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    if (closed.size() > w) closed.resize(w);
    if (open.empty()) return closed;
    if (closed.size() == w && open[0].score <= closed.back().score) return closed;
  }
}

constexpr int32_t kEndToken = 3;

Request BeamRequest(const Tokens& prompt, int32_t beams, int32_t max_tokens) {
  Request request = TokenRequest(prompt, max_tokens);
  request.n = beams;
  request.beam.emplace();
  request.stop.stop_token_ids = {TokenId{kEndToken}};
  return request;
}

void ExpectFound(const RequestOutput& output, const std::vector<Scored>& expected) {
  ASSERT_EQ(output.status, absl::OkStatus());
  ASSERT_EQ(output.choices.size(), expected.size());
  int32_t tokens = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const testing::ChoiceOutput& choice = output.choices.at(static_cast<int32_t>(i));
    Tokens shown = expected[i].tokens;
    tokens += static_cast<int32_t>(shown.size());
    const bool ended = shown.back() == kEndToken;
    if (ended) shown.pop_back();
    EXPECT_EQ(choice.tokens, shown) << "choice " << i;
    ASSERT_EQ(choice.ends.size(), 1u);
    EXPECT_EQ(choice.ends[0].reason, ended ? FinishReason::kStop : FinishReason::kLength);
  }
  EXPECT_EQ(output.usage.completion_tokens, tokens);
}

// Prompts that end inside a chunk, at its end, and one token long.
const std::vector<Tokens> kPrompts = {
    {1, 2, 4, 5, 6}, Tokens(16, 7), Tokens(33, 9), {5}, {8, 1, 8, 1, 8, 1, 8, 1, 8, 1, 8, 1, 8}};

void ExpectSearches(const LoopOptions& options) {
  LoopHarness h(options);
  int ended = 0;
  for (const int32_t beams : {1, 2, 4, 6}) {
    for (const Tokens& prompt : kPrompts) {
      for (const int32_t max_tokens : {1, 5, 40}) {
        for (const double penalty : {0.0, 1.0, 2.0}) {
          Request request = BeamRequest(prompt, beams, max_tokens);
          request.beam->length_penalty = penalty;
          const auto expected = SlowSearch(prompt, beams, max_tokens, penalty, kEndToken);
          ended += expected[0].tokens.back() == kEndToken;
          ASSERT_NO_FATAL_FAILURE(ExpectFound(h.Run(request), expected));
        }
      }
    }
  }
  EXPECT_GT(ended, 20);
  h.CheckIdle();
}

TEST(EngineLoopBeamsTest, FindsWhatTheSlowSearchFinds) { ExpectSearches({}); }

TEST(EngineLoopBeamsTest, FindsTheSameWithTwoStepsInFlight) {
  ExpectSearches({.max_in_flight = 2});
}

TEST(EngineLoopBeamsTest, FindsTheSameWithoutPrefixCache) {
  ExpectSearches({.prefix_cache = false});
}

// Two slots for up to six beams: the others wait, those that have delivered make room.
TEST(EngineLoopBeamsTest, FindsTheSameWithFewerSlotsThanBeams) {
  ExpectSearches({.max_sequences = 2, .step_token_budget = 8});
}

// The slots of others are theirs for long: beams take turns in those that they have.
TEST(EngineLoopBeamsTest, GoesOnBesideStreamsThatHoldTheOtherSlots) {
  for (const int in_flight : {1, 2}) {
    LoopHarness h({.max_sequences = 2, .step_token_budget = 8, .max_in_flight = in_flight});
    const auto other = h.Submit(TokenRequest(Tokens(20, 5), 400));
    const Tokens prompt(33, 9);
    Request request = BeamRequest(prompt, 6, 10);
    request.stop.stop_token_ids = {};
    const auto stream = h.Submit(request);
    int turns = 0;
    RequestOutput output, beside;
    for (; turns < 1000 && !output.finished; ++turns) {
      h.loop.Turn();
      ReadInto(*stream, h.tokenizer, &output);
    }
    EXPECT_LT(turns, 200);
    ReadInto(*other, h.tokenizer, &beside);
    EXPECT_FALSE(beside.finished);
    ASSERT_NO_FATAL_FAILURE(ExpectFound(output, SlowSearch(prompt, 6, 10, 1.0, -1)));
    other->Cancel();
    h.RunUntilIdle();
    h.CheckIdle();
  }
}

// A search is one request, however often its beams give up their slots: none of them finds
// anything.
TEST(EngineLoopBeamsTest, BeamsThatTakeTurnsCountAsOneRequest) {
  LoopHarness h({.max_sequences = 2, .step_token_budget = 8});
  Request request = BeamRequest(Tokens(33, 9), 6, 10);
  request.stop.stop_token_ids = {};
  EXPECT_EQ(h.Run(request).choices.size(), 6u);
  EXPECT_GT(h.loop.stats().preemptions_total, 0);
  EXPECT_EQ(h.cache->stats().matched_tokens_total, 0);
  for (int32_t i = 0; i < h.cache->tree().num_ids(); ++i) {
    EXPECT_EQ(h.cache->tree().node(kvcache::NodeId{i}).use.hits, 0);
  }
  h.CheckIdle();
}

// Six beams of 73 tokens share two chunks and want 18 more; there are seven.
TEST(EngineLoopBeamsTest, FindsTheSameWhenItsBeamsDoNotFit) {
  LoopHarness h({.num_chunks = 7, .step_token_budget = 8});
  for (const int32_t beams : {2, 6}) {
    const Tokens prompt(33, 9);
    Request request = BeamRequest(prompt, beams, 40);
    request.stop.stop_token_ids = {};
    ASSERT_NO_FATAL_FAILURE(ExpectFound(h.Run(request), SlowSearch(prompt, beams, 40, 1.0, -1)));
  }
  EXPECT_GT(h.loop.stats().preemptions_total, 0);
  h.CheckIdle();
}

TEST(EngineLoopBeamsTest, PrefillsOnceAndCopiesAtMostOneChunkPerFork) {
  LoopHarness h;
  const Tokens prompt(40, 6);
  Request request = BeamRequest(prompt, 4, 20);
  request.stop.stop_token_ids = {};
  // Of the chunks of 16 only that which holds the beams' newest tokens is copied, and never when it
  // is full.
  h.memory.on_copy = [&](kvcache::ChunkId from) {
    const auto length = static_cast<int32_t>(40 + (h.runner.rows() - 40) / 4);
    EXPECT_NE(length % 16, 0) << "a full chunk is copied";
    EXPECT_EQ(h.memory.cell(static_cast<int32_t>(from), 0).position, length / 16 * 16);
  };
  const RequestOutput output = h.Run(request);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 40);
  // The prompt, then every beam's newest token in each but the last step.
  EXPECT_EQ(h.runner.rows(), 40 + 4 * 19);
  // The first step needs 3 forks, every later one at most 3.
  EXPECT_LE(h.cache->stats().copied_chunks_total, 3 * 19);
  EXPECT_GT(h.memory.copies, 0);
  EXPECT_EQ(h.loop.stats().preemptions_total, 0);
}

// All beams of a request have their rows in the same steps.
TEST(EngineLoopBeamsTest, BeamsAdvanceTogether) {
  LoopHarness h;
  std::vector<size_t> rows;
  h.runner.before_step = [&](const StepBatch& batch) { rows.push_back(batch.tokens.size()); };
  Request request = BeamRequest(Tokens(20, 6), 4, 5);
  request.stop.stop_token_ids = {};
  h.Run(request);
  EXPECT_EQ(rows, (std::vector<size_t>{20, 4, 4, 4, 4}));
}

TEST(EngineLoopBeamsTest, ReturnsTheBestNOfTheBeams) {
  LoopHarness h;
  Request request = BeamRequest(kPrompts[0], 4, 12);
  request.n = 2;
  request.best_of = 4;
  std::vector<Scored> expected = SlowSearch(kPrompts[0], 4, 12, 1.0, kEndToken);
  expected.resize(2);
  ExpectFound(h.Run(request), expected);
}

TEST(EngineLoopBeamsTest, ShowsLogprobsAndPromptLogprobs) {
  LoopHarness h;
  Request request = BeamRequest(kPrompts[0], 3, 6);
  request.logprobs = {.top = 2, .prompt_top = 0};
  const RequestOutput output = h.Run(request);
  const std::vector<Scored> expected = SlowSearch(kPrompts[0], 3, 6, 1.0, kEndToken);
  for (const auto& [index, choice] : output.choices) {
    double sum = 0;
    for (const TokenEvent& event : choice.events) {
      ASSERT_TRUE(event.logprob.has_value());
      ASSERT_EQ(event.top.size(), 2u);
      EXPECT_LE(event.logprob->logprob, event.top[0].logprob);
      if (event.logprob->rank <= 2) {
        EXPECT_EQ(event.top[static_cast<size_t>(event.logprob->rank - 1)].token, event.token);
      }
      sum += event.logprob->logprob;
    }
    const Scored& same = expected[static_cast<size_t>(index)];
    if (same.tokens.size() == choice.events.size()) {
      EXPECT_NEAR(sum, same.sum, 1e-6);
    }
  }
  EXPECT_EQ(output.choices.at(0).prompt.size(), kPrompts[0].size());
}

TEST(EngineLoopBeamsTest, ComputesThePromptOnlyForNoTokens) {
  LoopHarness h;
  const RequestOutput output = h.Run(BeamRequest(kPrompts[1], 3, 0));
  ASSERT_EQ(output.choices.size(), 3u);
  for (const auto& [index, choice] : output.choices) {
    EXPECT_TRUE(choice.tokens.empty());
    EXPECT_EQ(choice.ends.at(0).reason, FinishReason::kLength);
  }
  h.CheckIdle();
}

TEST(EngineLoopBeamsTest, CancelAndFailureReleaseEverything) {
  for (int turns = 1; turns < 14; ++turns) {
    for (const bool fails : {false, true}) {
      LoopHarness h({.max_in_flight = 2});
      auto stream = h.Submit(BeamRequest(Tokens(40, 6), 4, 30));
      for (int i = 0; i < turns; ++i) h.loop.Turn();
      if (fails) {
        h.runner.FailStep(h.runner.launched() + 1, absl::UnavailableError("once"));
      } else {
        stream->Cancel();
      }
      h.RunUntilIdle();
      const RequestOutput output = h.Read(stream);
      EXPECT_FALSE(output.status.ok());
      EXPECT_EQ(output.choices.size(), 4u);
      h.CheckIdle();
    }
  }
}

void ExpectNextTurnCached(const Tokens& prompt, const Tokens& answer, LoopHarness* h) {
  Tokens next_turn = prompt;
  next_turn.insert(next_turn.end(), answer.begin(), answer.end());
  next_turn.push_back(9);
  const int32_t cached = h->Run(TokenRequest(next_turn, 1)).usage.cached_tokens;
  // Of the answer's last token K and V were not computed.
  EXPECT_GE(cached, static_cast<int32_t>(next_turn.size()) - 2);
}

// What nobody was shown would displace prompts that are asked for.
TEST(EngineLoopBeamsTest, OnlyThePromptAndTheAnswerStayAsCache) {
  for (const bool in_one_step_more : {false, true}) {
    for (const int32_t max_tokens : {5, 12, 60}) {
      LoopHarness h({.num_chunks = 200, .max_in_flight = in_one_step_more ? 2 : 1});
      Request request = BeamRequest(Tokens(40, 6), 6, max_tokens);
      request.best_of = 6;
      request.n = 1;
      const Tokens answer = h.Run(request).choices.at(0).tokens;
      // Chunks of 16; and of hypotheses that were finished and did not win, their last.
      const int32_t chunks = (40 + static_cast<int32_t>(answer.size()) + 15) / 16;
      EXPECT_LE(h.cache->stats().cached_chunks, chunks + 6) << max_tokens;
      EXPECT_EQ(h.cache->stats().evicted_chunks_total, 0);
      ExpectNextTurnCached(Tokens(40, 6), answer, &h);
      h.CheckIdle();
    }
  }
}

// Two beams of up to 73 tokens have their first 64 in common, and behind these each wants the fifth
// of five chunks. So they take turns, and what the one that is away needs is in the cache only.
TEST(EngineLoopBeamsTest, ADroppedBeamLeavesWhatAnotherThatHasMadeWayNeeds) {
  LoopHarness h({.num_chunks = 5});
  const Tokens prompt(33, 9);
  Request request = BeamRequest(prompt, 2, 40);
  request.stop.stop_token_ids = {};
  request.n = 1;
  request.best_of = 2;
  const Tokens answer = h.Run(request).choices.at(0).tokens;
  EXPECT_EQ(answer, SlowSearch(prompt, 2, 40, 1.0, -1).at(0).tokens);
  EXPECT_GT(h.loop.stats().preemptions_total, 0);
  EXPECT_LT(h.runner.rows(), 33 + 40 * 2 + 100);
  Tokens next_turn = prompt;
  next_turn.insert(next_turn.end(), answer.begin(), answer.end());
  next_turn.push_back(9);
  EXPECT_GE(h.Run(TokenRequest(next_turn, 1)).usage.cached_tokens, 64);
  h.CheckIdle();
}

// --- best_of ---

double MeanLogprob(const testing::ChoiceOutput& choice) {
  double sum = 0;
  for (const TokenEvent& event : choice.events) sum += event.logprob->logprob;
  return sum / static_cast<double>(choice.events.size());
}

TEST(EngineLoopBestOfTest, ReturnsTheBestOfWhatAllWouldBe) {
  LoopHarness h;
  Request all = TokenRequest(kPrompts[0], 8);
  all.sampling.temperature = 1;
  all.sampling.seed = 11;
  all.n = 6;
  all.logprobs.top = 0;
  std::map<double, Tokens, std::greater<>> by_mean;
  const RequestOutput sampled = h.Run(all);
  for (const auto& [index, choice] : sampled.choices) by_mean[MeanLogprob(choice)] = choice.tokens;
  ASSERT_EQ(by_mean.size(), 6u);

  Request best = all;
  best.n = 2;
  best.best_of = 6;
  for (const bool logprobs : {true, false}) {
    if (!logprobs) best.logprobs.top.reset();
    const RequestOutput output = h.Run(best);
    ASSERT_EQ(output.choices.size(), 2u);
    EXPECT_EQ(output.choices.at(0).tokens, by_mean.begin()->second);
    EXPECT_EQ(output.choices.at(1).tokens, std::next(by_mean.begin())->second);
    EXPECT_EQ(output.usage.completion_tokens, 6 * 8);
    EXPECT_EQ(output.choices.at(0).events[0].logprob.has_value(), logprobs);
  }
  h.CheckIdle();
}

TEST(EngineLoopBestOfTest, OnlyThePromptAndTheAnswersStayAsCache) {
  LoopHarness h({.num_chunks = 200});
  Request request = TokenRequest(Tokens(40, 6), 50);
  request.sampling.temperature = 1;
  request.n = 2;
  request.best_of = 12;
  const RequestOutput output = h.Run(request);
  // Two whole chunks of the prompt, then 40 to 89 of each.
  EXPECT_LE(h.cache->stats().cached_chunks, 2 + 2 * 4);
  for (const auto& [index, choice] : output.choices) {
    ExpectNextTurnCached(Tokens(40, 6), choice.tokens, &h);
  }
  h.CheckIdle();
}

TEST(EngineLoopBestOfTest, OfACancelledOneThePromptStays) {
  LoopHarness h({.num_chunks = 200});
  Request request = TokenRequest(Tokens(40, 6), 150);
  request.sampling.temperature = 1;
  request.n = 1;
  request.best_of = 6;
  auto stream = h.Submit(request);
  for (int i = 0; i < 60; ++i) h.loop.Turn();
  stream->Cancel();
  h.RunUntilIdle();
  EXPECT_EQ(h.cache->stats().cached_chunks, 3);
  EXPECT_EQ(h.Run(TokenRequest(Tokens(41, 6), 1)).usage.cached_tokens, 40);
}

TEST(EngineLoopBestOfTest, EchoesThePromptOncePerChoice) {
  LoopHarness h;
  Request request = TokenRequest(kPrompts[0], 4);
  request.sampling.temperature = 1;
  request.n = 2;
  request.best_of = 3;
  request.echo = true;
  const RequestOutput output = h.Run(request);
  ASSERT_EQ(output.choices.size(), 2u);
  EXPECT_EQ(output.choices.at(1).prompt.size(), kPrompts[0].size());
}

TEST(EngineLoopBestOfTest, ACancelledOneEndsEachChoiceOnce) {
  LoopHarness h;
  Request request = TokenRequest(kPrompts[0], 50);
  request.n = 2;
  request.best_of = 5;
  auto stream = h.Submit(request);
  for (int i = 0; i < 5; ++i) h.loop.Turn();
  EXPECT_GT(stream->Read().usage.computed_tokens, static_cast<int32_t>(kPrompts[0].size()));
  stream->Cancel();
  h.RunUntilIdle();
  const RequestOutput output = h.Read(stream);
  ASSERT_EQ(output.choices.size(), 2u);
  EXPECT_EQ(output.choices.at(1).ends.at(0).reason, FinishReason::kCancelled);
  h.CheckIdle();
}

// Their tokens come at the end only, or never.
TEST(EngineLoopBeamsTest, TellsAtEachStepWhatAllBeamsHaveComputed) {
  LoopHarness h;
  const Tokens& prompt = kPrompts[0];
  Request request = BeamRequest(prompt, 4, 20);
  request.stop.ignore_eos = true;
  request.stop.stop_token_ids = {};
  const auto stream = h.Submit(request);
  const auto computed = [&] { return stream->Read().usage.computed_tokens; };
  int32_t before = computed();
  for (int step = 0; step < 10; ++step) {
    h.loop.Turn();
    const int32_t now = computed();
    EXPECT_EQ(now, before + (step == 0 ? static_cast<int32_t>(prompt.size()) + 4 : 4)) << step;
    before = now;
  }
  h.RunUntilIdle();
  EXPECT_EQ(computed(), static_cast<int32_t>(prompt.size()) + 4 * 20);
}

// --- looking inside ---

TEST(EngineLoopInspectionTest, TellsWhatRunsAndWhatIsCached) {
  LoopHarness h;
  auto stream = h.Submit(TokenRequest(Tokens(40, 6), 30));
  for (int i = 0; i < 4; ++i) h.loop.Turn();
  const auto look = [&] {
    CacheView view;
    h.queue->Send([&](auto cache) { view = (*cache)->Describe({}); });
    h.loop.Turn();
    return view;
  };
  const CacheView running = look();
  ASSERT_EQ(running.nodes.size(), 3u);
  EXPECT_EQ(running.nodes[0].sharers, 1);
  EXPECT_TRUE(running.nodes[2].writer.has_value());
  h.RunUntilIdle();
  const CacheView idle = look();
  EXPECT_EQ(idle.nodes[0].sharers, 0);
  EXPECT_EQ(idle.stats.sequences, 0);
  h.queue->Close();
  absl::Status late;
  h.queue->Send([&](auto cache) { late = cache.status(); });
  EXPECT_TRUE(absl::IsUnavailable(late));
}

}  // namespace
}  // namespace refrain::engine
