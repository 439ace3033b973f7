// What a turn costs for those that wait: measured, with a wide margin (tag `exclusive`).

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/support/fake_chunk_mover.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/rounds.h"

namespace refrain::engine {
namespace {

constexpr int32_t kChunkTokens = 64;
constexpr int32_t kLongTokens = 1024 * kChunkTokens + 2;
constexpr int32_t kShortTokens = kChunkTokens + 2;
constexpr int kWaiting = 16;

// All answers are alike, and take no time.
class CostlessRunner final : public ModelRunner {
 public:
  int max_in_flight() const override { return 1; }
  StepHandle Launch(const StepBatch& batch) override {
    rows_ = batch.logits.size();
    return StepHandle{++launched_};
  }
  absl::StatusOr<StepResult> Collect(StepHandle) override {
    StepResult result;
    result.rows.resize(rows_);
    for (SampledToken& row : result.rows) {
      row.token = TokenId{3};
      row.logprob = TokenLogprob{TokenId{3}, -1, 1};
    }
    return result;
  }

 private:
  uint64_t launched_ = 0;
  size_t rows_ = 0;
};

class CostlessLoop {
 public:
  explicit CostlessLoop(int32_t step_token_budget = 1 << 20, int32_t max_sequences = 1)
      : cache_(*kvcache::CacheManager::Create(
            {.num_chunks = kChunks, .chunk_tokens = kChunkTokens, .max_slots = max_sequences},
            &memory_)),
        loop({.runner = &runner_,
              .cache = cache_.get(),
              .tokenizer = &tokenizer_,
              .queue = &queue_,
              .ledger = ledger_.get(),
              .clock = &clock_},
             {.scheduler = {.max_sequences = max_sequences,
                            .step_token_budget = step_token_budget,
                            .chunk_tokens = kChunkTokens}}) {}

  std::shared_ptr<TokenStream> Submit(int32_t seed, int32_t prompt_tokens, int32_t max_tokens,
                                      int32_t n = 1, int32_t best_of = 1) {
    auto encoded = std::make_unique<EncodedRequest>();
    encoded->number = ++number_;
    encoded->ticket = *ledger_->Enter("");
    encoded->stream = std::make_shared<TokenStream>();
    encoded->request.n = n;
    if (best_of > n) encoded->request.best_of = best_of;
    encoded->request.sampling.temperature = 0;
    encoded->request.stop.max_tokens = max_tokens;
    encoded->request.stop.ignore_eos = true;
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      const int64_t id = i == 0 ? seed : (seed + i * i) % 20;
      encoded->prompt.push_back(TokenId{static_cast<int32_t>(id)});
    }
    encoded->stop_rules = std::make_shared<const StopRules>(encoded->request.stop, max_tokens,
                                                            std::vector<TokenId>{});
    streams_.push_back(encoded->stream);
    queue_.Push(std::move(encoded));
    return streams_.back();
  }

  // The one that was submitted as number `number`, from 1 on.
  void Cancel(uint64_t number) { queue_.PostCancel(number); }

  void RunUntilIdle() {
    while (loop.Turn()) continue;
  }
  double TurnUs() {
    const auto begin = std::chrono::steady_clock::now();
    loop.Turn();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(end - begin).count();
  }
  double MedianTurnUs(int turns) {
    std::vector<double> us;
    for (int i = 0; i < turns; ++i) us.push_back(TurnUs());
    std::nth_element(us.begin(), us.begin() + turns / 2, us.end());
    return us[static_cast<size_t>(turns / 2)];
  }

 private:
  static constexpr int32_t kChunks = (kWaiting + 1) * (kLongTokens / kChunkTokens + 4);

  testing::FakeChunkMover memory_{kChunks, kChunkTokens};
  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  std::unique_ptr<kvcache::CacheManager> cache_;
  std::shared_ptr<AdmissionLedger> ledger_ =
      std::make_shared<AdmissionLedger>(1000, int64_t{1} << 40);
  RequestQueue queue_;
  SteadyClock clock_;
  CostlessRunner runner_;
  std::vector<std::shared_ptr<TokenStream>> streams_;
  uint64_t number_ = 0;

 public:
  EngineLoop loop;
};

// Conversations that are cached wait for the one slot.
double TurnUsWhileCachedPromptsWait(int32_t prompt_tokens) {
  CostlessLoop h;
  for (int i = 0; i < kWaiting; ++i) {
    h.Submit(1 + i, prompt_tokens, 0);
    h.RunUntilIdle();
  }
  h.Submit(0, 10, 1000);
  for (int i = 0; i < kWaiting; ++i) h.Submit(1 + i, prompt_tokens, 10);
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  return h.MedianTurnUs(40);
}

// The one that runs extends the chunk in which the prompt of those that wait ends.
double TurnUsWhileTheSamePromptWaits(int32_t prompt_tokens) {
  CostlessLoop h;
  h.Submit(0, prompt_tokens, 1000);
  h.loop.Turn();
  for (int i = 0; i < kWaiting; ++i) h.Submit(0, prompt_tokens, 10);
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  return h.MedianTurnUs(40);
}

// A walk over the idle chunks of all that wait would cost 15 times as much, and more.
TEST(EngineLoopWaitingTest, LongCachedPromptsCostATurnNoMoreThanShortOnes) {
  const double short_us = TurnUsWhileCachedPromptsWait(kShortTokens);
  EXPECT_LT(TurnUsWhileCachedPromptsWait(kLongTokens), 3 * short_us + 10) << short_us;
}

// To match them again would cost thousands of microseconds.
TEST(EngineLoopWaitingTest, PromptsThatEndInAChunkThatGrowsAreNotMatchedInEveryTurn) {
  const double short_us = TurnUsWhileTheSamePromptWaits(kShortTokens);
  EXPECT_LT(TurnUsWhileTheSamePromptWaits(kLongTokens), 3 * short_us + 10) << short_us;
}

// The turn that releases so many who were held for what one computes in three steps.
double TurnUsOfARelease(int held) {
  CostlessLoop h(kLongTokens / 3 + 1);
  for (int i = 0; i <= held; ++i) h.Submit(0, kLongTokens, 100);
  h.loop.Turn();
  EXPECT_EQ(h.loop.held_sequences(), static_cast<size_t>(held));
  h.loop.Turn();
  const double us = h.TurnUs();
  EXPECT_EQ(h.loop.held_sequences(), 0u);
  return us;
}

// To match all of them at once would cost 10 times as much for 10 times as many.
TEST(EngineLoopWaitingTest, AReleaseOfManyCostsATurnHardlyMoreThanOneOfFew) {
  double few_us = TurnUsOfARelease(kWaiting), many_us = TurnUsOfARelease(200);
  for (int i = 0; i < 2; ++i) {
    few_us = std::min(few_us, TurnUsOfARelease(kWaiting));
    many_us = std::min(many_us, TurnUsOfARelease(200));
  }
  EXPECT_LT(many_us, 3 * few_us + 500) << few_us;
}

// The turn in which one goes away, out of the middle of so many whose other choices wait.
double TurnUsOfACancel(int requests) {
  CostlessLoop h(1 << 20, requests);
  for (int i = 0; i < requests; ++i) h.Submit(i % 20, 2, 1000, /*n=*/128);
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, requests);
  h.Cancel(static_cast<uint64_t>(requests) / 2);
  return h.TurnUs();
}

// To take choice after choice out of the queue would cost 15 times as much.
TEST(EngineLoopWaitingTest, ManyChoicesLeaveALongQueueAsFastAsAShortOne) {
  double few_us = TurnUsOfACancel(4), many_us = 0;
  EXPECT_TRUE(testing::SomeRoundKeeps([&] {
    few_us = std::min(few_us, TurnUsOfACancel(4));
    many_us = TurnUsOfACancel(64);
    return many_us < 3 * few_us + 200;
  })) << many_us
      << " us of 64, " << few_us << " us of 4";
}

// The turn in which the last of so many sequences ends, or goes away before it does, one of which
// is the answer. The others have ended before.
double TurnUsOfTheEndOfABestOf(int32_t prompt_tokens, bool cancelled) {
  constexpr int32_t kSequences = 64, kTokens = 4;
  CostlessLoop h(1 << 20, kSequences - 1);
  h.Submit(0, prompt_tokens, kTokens, /*n=*/1, kSequences);
  while (h.loop.stats().generated_tokens_total < kSequences * kTokens - 1) h.loop.Turn();
  EXPECT_EQ(h.loop.stats().running_sequences, 1);
  if (cancelled) h.Cancel(1);
  const double us = h.TurnUs();
  EXPECT_EQ(h.loop.stats().running_sequences, 0);
  return us;
}

// To copy and match the prompt for each of them would cost 5,000 microseconds, and more.
TEST(EngineLoopWaitingTest, ABestOfBehindALongPromptEndsNearlyAsFastAsBehindAShortOne) {
  for (const bool cancelled : {false, true}) {
    double short_us = TurnUsOfTheEndOfABestOf(kShortTokens, cancelled), long_us = 0;
    EXPECT_TRUE(testing::SomeRoundKeeps([&] {
      short_us = std::min(short_us, TurnUsOfTheEndOfABestOf(kShortTokens, cancelled));
      long_us = TurnUsOfTheEndOfABestOf(kLongTokens, cancelled);
      return long_us < 3 * short_us + 1000;
    })) << long_us
        << " us, behind a short one " << short_us << (cancelled ? ", cancelled" : "");
  }
}

}  // namespace
}  // namespace refrain::engine
