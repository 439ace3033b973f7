#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "engine/engine_loop.h"
#include "tests/engine/thirty_two_requests.h"
#include "tests/support/evict_all.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

class EngineLoopSharingTest : public ::testing::TestWithParam<int> {
 protected:
  LoopOptions Options() const { return OptionsOf32(GetParam()); }
  // One request runs at a time, in twelve chunks.
  LoopOptions OneAtATime() const {
    LoopOptions options = Options();
    options.num_chunks = 12;
    options.max_sequences = 1;
    return options;
  }
  // Six requests, each of which takes a third of these.
  static std::vector<std::shared_ptr<TokenStream>> SubmitSix(LoopHarness* h) {
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (int seed = 3; seed < 9; ++seed) {
      streams.push_back(h->Submit(TokenRequest(Prompt(60, seed), 4)));
    }
    return streams;
  }
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineLoopSharingTest, ::testing::Values(1, 2));

TEST_P(EngineLoopSharingTest, ASecondRequestComputesOnlyWhatIsNew) {
  LoopHarness h(Options());
  const RequestOutput first = h.Run(TokenRequest(Prompt(100), 10));
  EXPECT_EQ(first.usage.cached_tokens, 0);
  std::vector<int32_t> longer = Prompt(100);
  longer.insert(longer.end(), first.choices.at(0).tokens.begin(), first.choices.at(0).tokens.end());
  longer.push_back(3);
  const int64_t before = h.loop.stats().computed_prompt_tokens_total;
  const RequestOutput second = h.Run(TokenRequest(longer, 5));
  // The last generated token was never computed.
  EXPECT_EQ(second.usage.cached_tokens, 109);
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total - before, 2);
  EXPECT_EQ(second.choices.at(0).tokens, Alone(TokenRequest(longer, 5)).choices.at(0).tokens);
  h.CheckIdle();
}

TEST_P(EngineLoopSharingTest, ExplainsWhatWasNotFound) {
  LoopOptions options = Options();
  options.num_chunks = 20;  // 320 tokens
  LoopHarness h(options);
  const RequestOutput first = h.Run(TokenRequest(Prompt(100), 10));
  ASSERT_TRUE(first.usage.miss.has_value());
  EXPECT_EQ(first.usage.miss->reason, CacheMissReason::kNeverSeen);
  EXPECT_FALSE(h.Run(TokenRequest(Prompt(100), 1)).usage.miss.has_value());

  // The next turn is no fault: what was there it has found.
  std::vector<int32_t> longer = Prompt(100);
  longer.insert(longer.end(), first.choices.at(0).tokens.begin(), first.choices.at(0).tokens.end());
  longer.resize(130, 3);
  const RequestOutput turn = h.Run(TokenRequest(longer, 1));
  ASSERT_TRUE(turn.usage.miss.has_value());
  EXPECT_EQ(turn.usage.miss->reason, CacheMissReason::kNeverSeen);
  EXPECT_EQ(turn.usage.miss->at_token, 109);

  std::vector<int32_t> other = Prompt(100);
  other[60] = (other[60] + 1) % 24;
  const RequestOutput diverged = h.Run(TokenRequest(other, 1));
  ASSERT_TRUE(diverged.usage.miss.has_value());
  EXPECT_EQ(diverged.usage.miss->reason, CacheMissReason::kDiverged);
  EXPECT_EQ(diverged.usage.miss->at_token, 60);

  h.Run(TokenRequest(Prompt(300, 5), 1));  // takes nearly all of the chunks
  const RequestOutput evicted = h.Run(TokenRequest(Prompt(100), 1));
  ASSERT_TRUE(evicted.usage.miss.has_value());
  EXPECT_EQ(evicted.usage.miss->reason, CacheMissReason::kEvicted);
  EXPECT_EQ(evicted.usage.miss->at_token + evicted.usage.miss->evicted_tokens, 96);

  // In a namespace of its own the same prompt was never there.
  Request salted = TokenRequest(Prompt(100), 1);
  salted.cache_salt = "mine";
  EXPECT_EQ(h.Run(salted).usage.miss->reason, CacheMissReason::kNeverSeen);
  h.CheckIdle();
}

// Twelve chunks for conversations that come and go, and one that asked to be kept: LRU alone would
// have evicted it.
TEST_P(EngineLoopSharingTest, KeepsAPromptThatWillComeAgain) {
  for (const bool keep : {false, true}) {
    LoopOptions options = Options();
    options.num_chunks = 12;
    LoopHarness h(options);
    Request kept = TokenRequest(Prompt(40), 0);
    kept.keep_cached = keep;
    h.Run(kept);
    for (int seed = 3; seed < 9; ++seed) h.Run(TokenRequest(Prompt(60, seed), 4));
    EXPECT_EQ(h.Run(TokenRequest(Prompt(40), 1)).usage.cached_tokens, keep ? 39 : 0);
    h.CheckIdle();
  }
}

// Twelve chunks, and conversations that come one after the other. The last one in the queue is the
// next turn of the first, which those before it would have evicted.
TEST_P(EngineLoopSharingTest, WhatAWaitingRequestWillUseIsEvictedLast) {
  for (const bool waits : {true, false}) {
    LoopHarness h(OneAtATime());
    h.Run(TokenRequest(Prompt(60), 4));
    const auto streams = SubmitSix(&h);
    if (!waits) h.RunUntilIdle();
    const auto next_turn = h.Submit(TokenRequest(Prompt(60), 1));
    h.RunUntilIdle();
    EXPECT_EQ(h.Read(next_turn).usage.cached_tokens, waits ? 59 : 0);
    h.CheckIdle();
  }
}

// Of two conversations a next turn waits while another request runs, which leaves room for one of
// them: that of the turn that runs first.
TEST_P(EngineLoopSharingTest, WhatABetterPriorityWillUseIsEvictedAfterWhatOthersWill) {
  for (const bool by_priority : {true, false}) {
    LoopOptions options = OneAtATime();
    options.policy = by_priority ? Policy::kPriority : Policy::kFcfs;
    LoopHarness h(options);
    h.Run(TokenRequest(Prompt(60), 1));
    h.Run(TokenRequest(Prompt(60, 2), 1));
    const auto submit = [&](Request request, int32_t priority) {
      request.priority = priority;
      return h.Submit(std::move(request));
    };
    const auto runs = submit(TokenRequest(Prompt(90, 3), 10), 0);
    const auto older = submit(TokenRequest(Prompt(60), 1), 7);
    const auto better = submit(TokenRequest(Prompt(60, 2), 1), 3);
    h.RunUntilIdle();
    const int32_t of_older = h.Read(older).usage.cached_tokens;
    const int32_t of_better = h.Read(better).usage.cached_tokens;
    EXPECT_EQ(by_priority ? of_better : of_older, 59);
    EXPECT_LT(by_priority ? of_older : of_better, 59);
    h.CheckIdle();
  }
}

// One that was cancelled awaits nothing any more.
TEST_P(EngineLoopSharingTest, WhatNobodyWaitsForAnyMoreIsEvictedAsEverything) {
  LoopHarness h(OneAtATime());
  h.Run(TokenRequest(Prompt(60), 4));
  const auto streams = SubmitSix(&h);
  const auto cancelled = h.Submit(TokenRequest(Prompt(60), 1));
  h.loop.Turn();
  cancelled->Cancel();
  h.RunUntilIdle();
  EXPECT_EQ(h.Run(TokenRequest(Prompt(60), 1)).usage.cached_tokens, 0);
  h.CheckIdle();
}

// Whether tenants share or not.
TEST_P(EngineLoopSharingTest, KeepsItAlsoWhereAnotherTenantAsksForMuch) {
  for (const bool isolated : {false, true}) {
    LoopOptions options = Options();
    options.num_chunks = 24;
    options.isolate_tenants = isolated;
    LoopHarness h(options);
    Request kept = TokenRequest(Prompt(40), 0);
    kept.keep_cached = true;
    kept.tenant = "b";
    h.Run(kept);
    for (int seed = 3; seed < 12; ++seed) {
      Request other = TokenRequest(Prompt(60, seed), 4);
      other.keep_cached = seed < 7;
      other.tenant = "a";
      h.Run(other);
    }
    EXPECT_EQ(h.Run(kept).usage.cached_tokens, 39) << isolated;
    h.CheckIdle();
  }
}

TEST_P(EngineLoopSharingTest, ThirtyTwoRequestsWithOneNewPromptPrefillItOnce) {
  LoopHarness h(Options());
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 32; ++i) streams.push_back(h.Submit(TokenRequest(Prompt(2048), 8)));
  h.RunUntilIdle();
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 2048 + 31);
  EXPECT_EQ(h.loop.stats().cached_prompt_tokens_total, 31 * 2047);
  const RequestOutput alone = Alone(TokenRequest(Prompt(2048), 8));
  for (size_t i = 0; i < streams.size(); ++i) {
    const RequestOutput output = h.Read(streams[i]);
    EXPECT_EQ(output.choices.at(0).tokens, alone.choices.at(0).tokens);
    EXPECT_EQ(output.usage.cached_tokens, i == 0 ? 0 : 2047);
  }
  h.CheckIdle();
}

// Different ends behind 2,048 common tokens, all at once.
TEST_P(EngineLoopSharingTest, ACommonPrefixIsComputedOnceAndEachEndByItsOwner) {
  LoopHarness h(Options());
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 32; ++i) {
    std::vector<int32_t> prompt = Prompt(2048);
    for (const int32_t id : Prompt(20, 100 + i)) prompt.push_back((id + i) % 24);
    requests.push_back(TokenRequest(prompt, 8));
    streams.push_back(h.Submit(requests.back()));
  }
  h.RunUntilIdle();
  // Ends that begin alike may be shared, too.
  EXPECT_LE(h.loop.stats().computed_prompt_tokens_total, 2048 + 32 * 20);
  EXPECT_GE(h.loop.stats().computed_prompt_tokens_total, 2048 + 32);
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(h.Read(streams[i]).choices.at(0).tokens, Alone(requests[i]).choices.at(0).tokens);
  }
  h.CheckIdle();
}

// 2,048 shared and 50 own tokens, 64 more generated: never more than 1.05 times the chunks of the
// distinct tokens, each lineage rounded up to its chunk.
TEST_P(EngineLoopSharingTest, MemoryIsThatOfTheDistinctTokens) {
  LoopOptions options = Options();
  options.num_chunks = 1000;
  LoopHarness h(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int32_t i = 0; i < 32; ++i) {
    std::vector<int32_t> prompt = Prompt(2048);
    prompt.push_back(i % 24);
    prompt.push_back(i / 24);
    for (int32_t k = 0; k < 48; ++k) prompt.push_back((k * k + i) % 24);
    streams.push_back(h.Submit(TokenRequest(prompt, 64)));
  }
  const int32_t distinct_chunks = 2048 / 16 + 32 * ((50 + 63 + 15) / 16);
  int32_t most_chunks = 0;
  EngineStats fullest;
  while (h.loop.Turn()) {
    const kvcache::CacheStats stats = h.cache->stats();
    most_chunks = std::max(most_chunks, stats.used_chunks + stats.cached_chunks);
    const EngineStats told = h.loop.stats();
    if (told.running_sequences == 32) fullest = told;
  }
  // What is told of it while all 32 run and have begun to generate.
  EXPECT_GT(fullest.kv_logical_tokens, 32 * 2098);
  EXPECT_LE(fullest.kv_logical_tokens, 32 * (2098 + 64));
  EXPECT_GE(fullest.kv_used_chunks, distinct_chunks - 32);  // the last one of each
  EXPECT_LE(fullest.kv_used_chunks, distinct_chunks);
  EXPECT_LE(most_chunks, distinct_chunks * 105 / 100);
  EXPECT_GE(most_chunks, distinct_chunks * 95 / 100);
  for (const auto& stream : streams) EXPECT_EQ(h.Read(stream).status, absl::OkStatus());
  h.CheckIdle();
}

TEST_P(EngineLoopSharingTest, SaltsDoNotShare) {
  LoopHarness h(Options());
  h.Run(TokenRequest(Prompt(100), 2));
  Request salted = TokenRequest(Prompt(100), 2);
  salted.cache_salt = "a";
  EXPECT_EQ(h.Run(salted).usage.cached_tokens, 0);
  EXPECT_EQ(h.Run(salted).usage.cached_tokens, 99);
  // At once: nobody waits for one of another salt.
  Request other = TokenRequest(Prompt(600, 3), 2);
  other.cache_salt = "b";
  const auto plain = h.Submit(TokenRequest(Prompt(600, 3), 2));
  const auto with_salt = h.Submit(other);
  h.RunUntilIdle();
  EXPECT_EQ(h.Read(plain).usage.cached_tokens, 0);
  EXPECT_EQ(h.Read(with_salt).usage.cached_tokens, 0);
  h.CheckIdle();
}

// A client may choose any salt. These two give tenant "a" the XXH3 that tenant "b" has without one.
TEST_P(EngineLoopSharingTest, NoSaltTellsOfAnotherTenantsPrompts) {
  for (const char* salt : {"iellkcmpgpliieohiigmdfogjdfegbefcgldjgmecdmkldnepplcenfimiejdijo",
                           "cjjkpocfhmnnclkaaaoeogfekniklpoejdhpheaphdionalhicenahhankcmkmkj"}) {
    LoopOptions options = Options();
    options.isolate_tenants = true;
    LoopHarness h(options);
    Request victim = TokenRequest(Prompt(600), 2);
    victim.tenant = "b";
    Request guess = victim;
    guess.tenant = "a";
    guess.cache_salt = salt;
    const auto first = h.Submit(victim);
    const auto beside = h.Submit(guess);
    while (h.loop.Turn()) EXPECT_EQ(h.loop.held_sequences(), 0u);
    ASSERT_TRUE(h.Read(beside).usage.miss.has_value());
    EXPECT_EQ(h.Read(first).usage.cached_tokens, 0);

    victim.prompt = TokenRequest(Prompt(600, 3), 2).prompt;
    guess.prompt = victim.prompt;
    h.Run(victim);
    const RequestOutput output = h.Run(guess);
    ASSERT_TRUE(output.usage.miss.has_value());
    EXPECT_EQ(output.usage.miss->reason, CacheMissReason::kNeverSeen);
    EXPECT_EQ(output.usage.miss->evicted_tokens, 0);
    h.CheckIdle();
  }
}

TEST_P(EngineLoopSharingTest, WithoutPrefixCacheNothingIsSharedAndNothingStays) {
  LoopOptions options = Options();
  options.num_chunks = 4096;
  options.prefix_cache = false;
  LoopHarness h(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(h.Submit(TokenRequest(Prompt(600), 8)));
  h.RunUntilIdle();
  EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 4 * 600);
  EXPECT_EQ(h.cache->stats().free_chunks, options.num_chunks);
  h.CheckIdle();
}

// The first ones end while others wait: at their first token, or for want of slots.
TEST_P(EngineLoopSharingTest, WithoutPrefixCacheChoicesShareTheirPromptWhicheverEndFirst) {
  Request one_token = TokenRequest(Prompt(100), 1);
  one_token.n = 8;
  Request stopped = TokenRequest(Prompt(100), 20);
  stopped.n = 8;
  std::vector<TokenId> every_token;
  for (int32_t id = 0; id < 25; ++id) every_token.push_back(TokenId{id});
  stopped.stop.stop_token_ids = every_token;
  Request best_of = TokenRequest(Prompt(100), 1);
  best_of.best_of = 8;
  Request some_tokens = TokenRequest(Prompt(100), 5);
  some_tokens.n = 8;
  for (Request request : {one_token, stopped, best_of, some_tokens}) {
    request.sampling.temperature = 1;
    request.sampling.seed = 3;
    for (const int32_t max_sequences : {1, 3, 32}) {
      LoopOptions options = Options();
      options.max_sequences = max_sequences;
      const RequestOutput cached = LoopHarness(options).Run(request);
      options.prefix_cache = false;
      LoopHarness h(options);
      const RequestOutput output = h.Run(request);
      // The prompt once, its last token for each choice.
      EXPECT_EQ(h.loop.stats().computed_prompt_tokens_total, 100 + 7) << max_sequences;
      for (const auto& [index, choice] : output.choices) {
        EXPECT_EQ(choice.tokens, cached.choices.at(index).tokens);
      }
      EXPECT_EQ(h.cache->stats().free_chunks, options.num_chunks);
      h.CheckIdle();
    }
  }
}

// How many of the waiting sequences' matches a plan is told of that are there no more.
class StaleMatches {
 public:
  StepPlan operator()(const SchedulerSnapshot& snapshot) {
    waiting = snapshot.waiting.size();
    stale = static_cast<size_t>(
        std::count_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                      [](const WaitingEntry& entry) { return entry.shared_tokens > 0; }));
    return Plan(snapshot);
  }
  size_t waiting = 0, stale = 0;
};

// Also while some of them go.
TEST(EngineLoopRefreshTest, AMatchIsLookedForAgainWithinTheStatedNumberOfPlans) {
  constexpr size_t kWaiting = 100;
  StaleMatches seen;
  LoopHarness h({.max_sequences = 1, .policy = Policy::kLongestPrefix, .planner = std::ref(seen)});
  h.Run(TokenRequest(Prompt(64), 1));
  const auto running = h.Submit(TokenRequest(Prompt(5, 2), 400));
  h.loop.Turn();
  std::vector<std::shared_ptr<TokenStream>> waiting;
  for (size_t i = 0; i < kWaiting; ++i) waiting.push_back(h.Submit(TokenRequest(Prompt(65), 1)));
  h.loop.Turn();
  EXPECT_EQ(seen.stale, kWaiting);
  EXPECT_EQ(testing::EvictAll(h.cache.get()), 4);
  constexpr size_t kPlans =
      (kWaiting + EngineLoop::kRefreshedInTurn - 1) / EngineLoop::kRefreshedInTurn;
  for (size_t i = 0; i < kPlans; ++i) {
    if (i < kPlans / 2) {
      EXPECT_GT(seen.stale, 0u);
    }
    if (i % 2 == 0) waiting[i]->Cancel();
    h.loop.Turn();
  }
  EXPECT_EQ(seen.waiting, kWaiting - (kPlans + 1) / 2);
  EXPECT_EQ(seen.stale, 0u);
  running->Cancel();
  h.RunUntilIdle();
  h.CheckIdle();
}

// Half of one token is no token: only what shares something may overtake.
TEST(EngineLoopGroupingTest, AOneTokenPromptDoesNotOvertake) {
  LoopHarness h({.max_sequences = 1});
  const auto running = h.Submit(TokenRequest({1, 2, 3}, 6));
  h.loop.Turn();
  const auto older = h.Submit(TokenRequest({4, 5, 6, 7}, 2));
  const auto younger = h.Submit(TokenRequest({8}, 2));
  RequestOutput of_older, of_younger;
  for (int turn = 0; turn < 100 && !of_older.finished; ++turn) {
    h.loop.Turn();
    testing::ReadInto(*older, h.tokenizer, &of_older);
    testing::ReadInto(*younger, h.tokenizer, &of_younger);
    EXPECT_TRUE(of_older.finished || of_younger.choices.empty());
  }
  EXPECT_TRUE(of_older.finished);
  h.RunUntilIdle();
}

// Also where the other tokens come later, with their log-probabilities.
TEST_P(EngineLoopSharingTest, EchoTellsTheBosThatTheTokenizerAdded) {
  for (const bool logprobs : {false, true}) {
    LoopHarness h(Options());
    h.tokenizer.bos_token = TokenId{7};
    Request request;
    request.prompt = TextPrompt{.text = "abc"};
    request.echo = true;
    request.n = 2;
    if (logprobs) request.logprobs.prompt_top = 0;
    const RequestOutput output = h.Run(request);
    ASSERT_EQ(output.status, absl::OkStatus());
    ASSERT_EQ(output.choices.size(), 2u);
    for (const auto& [index, choice] : output.choices) {
      ASSERT_EQ(choice.prompt.size(), 4u);
      EXPECT_EQ(choice.prompt[0].token, TokenId{7});
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(choice.prompt[i].added_bos, i == 0);
    }
  }
}

// Log-probabilities of cached prompt tokens are computed again, their memory is shared.
TEST_P(EngineLoopSharingTest, PromptLogprobsOfACachedPromptAreTheSame) {
  LoopHarness h(Options());
  Request request = TokenRequest(Prompt(300), 4);
  request.logprobs.prompt_top = 2;
  request.echo = true;
  const RequestOutput uncached = h.Run(request);
  const int64_t copies = h.memory.copies;
  const RequestOutput cached = h.Run(request);
  EXPECT_EQ(uncached.usage.cached_tokens, 0);
  EXPECT_EQ(cached.usage.cached_tokens, 299);
  EXPECT_LE(h.memory.copies - copies, 1);
  const auto& a = uncached.choices.at(0);
  const auto& b = cached.choices.at(0);
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.prompt.size(), 300u);
  ASSERT_EQ(b.prompt.size(), 300u);
  for (size_t i = 1; i < a.prompt.size(); ++i) {
    ASSERT_TRUE(b.prompt[i].logprob.has_value()) << i;
    EXPECT_EQ(a.prompt[i].logprob->logprob, b.prompt[i].logprob->logprob) << i;
    EXPECT_EQ(a.prompt[i].token, b.prompt[i].token);
  }
  h.CheckIdle();
}

// The pool is far too small for both conversations' caches.
TEST_P(EngineLoopSharingTest, EvictionMakesRoomAndChangesNothing) {
  LoopOptions options = Options();
  options.num_chunks = 24;
  options.max_sequences = 4;
  LoopHarness h(options);
  for (int round = 0; round < 3; ++round) {
    for (int32_t seed = 0; seed < 4; ++seed) {
      const Request request = TokenRequest(Prompt(150, seed), 20);
      EXPECT_EQ(h.Run(request).choices.at(0).tokens, Alone(request).choices.at(0).tokens);
    }
  }
  EXPECT_GT(h.loop.stats().kv_evicted_chunks_total, 20);
  h.CheckIdle();
}

// Three sequences of six chunks each fill the pool. The one that makes way loses a chunk to each of
// the others, and computes no more than these two again.
TEST_P(EngineLoopSharingTest, APreemptedSequenceResumesFromItsChunks) {
  LoopOptions options = Options();
  options.num_chunks = 18;
  options.max_sequences = 4;
  LoopHarness h(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 3; ++i) {
    requests.push_back(TokenRequest(Prompt(50, i), 60));
    streams.push_back(h.Submit(requests.back()));
  }
  h.RunUntilIdle();
  EXPECT_EQ(h.loop.stats().preemptions_total, 1);
  constexpr int64_t kRowsAlone = 50 + 60 - 1;  // the last token is never computed
  EXPECT_LE(h.runner.rows() - 3 * kRowsAlone, 2 * options.chunk_tokens);
  // They share nothing, and what is their own counts as found by nobody.
  EXPECT_EQ(h.cache->stats().matched_tokens_total, 0);
  for (int32_t i = 0; i < h.cache->tree().num_ids(); ++i) {
    EXPECT_EQ(h.cache->tree().node(kvcache::NodeId{i}).use.hits, 0);
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(h.Read(streams[i]).choices.at(0).tokens, Alone(requests[i]).choices.at(0).tokens);
  }
  h.CheckIdle();
}

// Of requests that had not ended: waiting, held for another's chunks, in prefill, decoding, beams.
TEST_P(EngineLoopSharingTest, TenThousandRandomCancelsReleaseEverything) {
  LoopOptions options = Options();
  options.num_chunks = 60;
  options.max_sequences = 8;
  options.step_token_budget = 48;
  LoopHarness h(options);
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  struct Live {
    std::shared_ptr<TokenStream> stream;
    RequestOutput output;
  };
  std::vector<Live> live;
  int cancelled = 0, while_held = 0, without_tokens = 0;
  while (cancelled < 10000) {
    while (live.size() < 12) {
      // Prompts that nobody has asked for yet, by two or three requests at about the same time.
      const int32_t seed = cancelled / 4 + below(2);
      Request request = TokenRequest(Prompt(1 + below(200), seed), 1 + below(20));
      request.n = 1 + below(2);
      if (below(4) == 0) {
        request.beam.emplace();
      } else {
        request.best_of = request.n + below(2);
      }
      live.push_back({h.Submit(request), {}});
    }
    for (int turns = below(3); turns > 0; --turns) h.loop.Turn();
    const size_t victim = static_cast<size_t>(below(12));
    Live& one = live[victim];
    ReadInto(*one.stream, h.tokenizer, &one.output);
    one.stream->Cancel();
    if (!one.output.finished) {
      ++cancelled;
      without_tokens += one.output.choices.empty() ? 1 : 0;
      while_held += h.loop.held_sequences() > 0 ? 1 : 0;
    }
    live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    if (cancelled % 100 == 0) {
      ASSERT_EQ(h.cache->CheckInvariants(), absl::OkStatus());
    }
  }
  EXPECT_GT(while_held, 1000);
  EXPECT_GT(without_tokens, 1000);
  EXPECT_LT(without_tokens, 9000);
  live.clear();
  h.RunUntilIdle();
  h.CheckIdle();
}

}  // namespace
}  // namespace refrain::engine
