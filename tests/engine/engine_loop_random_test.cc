#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/evict_all.h"
#include "tests/support/loop_harness.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

// Whose weights lie far apart.
void ChooseTenant(std::mt19937& random, Request* request) {
  static constexpr double kWeights[] = {0.01, 1, 1, 30};
  const uint32_t tenant = random() % std::size(kWeights);
  request->tenant = std::to_string(tenant);
  request->tenant_weight = kWeights[tenant];
}

Request RandomRequest(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  // Most prompts begin like others: with one of three long texts, cut somewhere.
  std::vector<int32_t> prompt;
  if (below(3) > 0) {
    const int32_t text = below(3);
    for (int32_t i = 0, n = 1 + below(90); i < n; ++i) prompt.push_back((text + i * i) % 24);
  }
  for (int32_t n = 1 + below(below(8) == 0 ? 120 : 30); n > 0; --n) prompt.push_back(below(24));
  // Some end with a chunk, or a token before or behind its end.
  const size_t end = static_cast<size_t>(16 * (1 + below(4)) + below(3) - 1);
  if (below(4) == 0 && end < prompt.size()) prompt.resize(end);
  Request request = TokenRequest(prompt, below(3) == 0 ? below(10) : below(100));
  request.n = below(5) == 0 ? 1 + below(4) : 1;
  request.sampling.temperature = below(3) == 0 ? 0 : 1;
  request.sampling.seed = random();
  request.sampling.frequency_penalty = below(4) == 0 ? 0.5 : 0;
  request.stop.ignore_eos = below(2) == 0;
  if (below(3) == 0) request.stop.stop = {"ab", "dea", "x  y", "ca"};
  if (below(4) == 0) request.stop.stop_token_ids = {TokenId{7}, TokenId{20}};
  request.stop.min_tokens = std::min(below(4), request.stop.max_tokens);
  request.stop.include_stop_in_output = below(3) == 0;
  if (below(5) == 0) request.logprobs.prompt_top = 1;
  if (below(4) == 0) request.logprobs.top = 2;
  request.echo = below(5) == 0;
  request.keep_cached = below(8) == 0;
  request.priority = below(3);
  if (below(6) == 0) request.cache_salt = "salt";
  const int32_t kind = below(6);
  if (kind == 0) request.best_of = request.n + below(3);
  if (kind == 1) {
    request.n = 1 + below(2);
    request.best_of = request.n + below(4);
    request.beam = {.length_penalty = below(3) * 0.5, .early_stopping = below(3) == 0};
    request.sampling = {.temperature = 0};
    request.stop.stop = {};
    request.echo = false;
  }
  return request;
}

void ExpectSameEvents(const std::vector<TokenEvent>& got, const std::vector<TokenEvent>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].token, expected[i].token);
    ASSERT_EQ(got[i].logprob.has_value(), expected[i].logprob.has_value());
    if (got[i].logprob.has_value()) {
      ASSERT_EQ(got[i].logprob->logprob, expected[i].logprob->logprob);
    }
    ASSERT_EQ(got[i].top.size(), expected[i].top.size());
    for (size_t k = 0; k < got[i].top.size(); ++k) {
      ASSERT_EQ(got[i].top[k].token, expected[i].top[k].token);
      ASSERT_EQ(got[i].top[k].logprob, expected[i].top[k].logprob);
    }
  }
}

void ExpectSame(const RequestOutput& got, const RequestOutput& expected) {
  ASSERT_EQ(got.status, expected.status);
  ASSERT_EQ(got.choices.size(), expected.choices.size());
  EXPECT_EQ(got.usage.completion_tokens, expected.usage.completion_tokens);
  for (const auto& [index, choice] : expected.choices) {
    const testing::ChoiceOutput& other = got.choices.at(index);
    ASSERT_EQ(other.text, choice.text);
    ASSERT_EQ(other.tokens, choice.tokens);
    ASSERT_NO_FATAL_FAILURE(ExpectSameEvents(other.prompt, choice.prompt));
    ASSERT_NO_FATAL_FAILURE(ExpectSameEvents(other.events, choice.events));
    ASSERT_EQ(other.ends.size(), 1u);
    ASSERT_EQ(other.ends[0].reason, choice.ends[0].reason);
    ASSERT_EQ(other.ends[0].matched_stop, choice.ends[0].matched_stop);
  }
}

struct Live {
  Request request;
  std::shared_ptr<TokenStream> stream;
  RequestOutput output;
  bool disturbed = false;  // cancelled or timed out: its output is a beginning
};

// Plans as the scheduler does, which relies on the queue's order.
StepPlan PlanOfOrderedQueue(const SchedulerSnapshot& snapshot) {
  for (size_t i = 1; i < snapshot.waiting.size(); ++i) {
    const WaitingEntry& older = snapshot.waiting[i - 1];
    const WaitingEntry& younger = snapshot.waiting[i];
    EXPECT_LT(older.sequence, younger.sequence);
    EXPECT_LE(older.since_step, younger.since_step);
  }
  return Plan(snapshot);
}

struct Others {
  bool several_tenants = false;
  bool operators = false;  // who pin, drop and evict
  bool must_meet = true;   // the setting is one in which much of everything happens
};

// How a step failed, or because of what is pinned.
bool MayFail(const absl::Status& status, const Others& others) {
  return status.message() == "once" || (others.operators && absl::IsFailedPrecondition(status));
}

// Pins one prompt at a time, drops others and evicts all.
class Operator {
 public:
  explicit Operator(kvcache::CacheManager* cache) : cache_(cache) {}

  // Drops and pins the prompt of `request`.
  void Act(std::mt19937& random, const Request& request) {
    const std::vector<TokenId>& ids = std::get<TokenPrompt>(request.prompt).ids;
    const uint32_t action = random() % 4;
    if (action == 0) {
      testing::EvictAll(cache_);
    } else if (action == 1) {
      cache_->Drop({}, {.ids = ids, .positions = {}});
    } else {
      Unpin();
      if (action == 2) return;
      pinned_ids_.assign(ids.begin(), ids.begin() + std::min<ptrdiff_t>(32, std::ssize(ids)));
      pinned_tokens_ = cache_->Pin({}, {.ids = pinned_ids_, .positions = {}});
      pins_ += pinned_tokens_ > 0 ? 1 : 0;
    }
  }
  void Unpin() {
    cache_->Unpin({}, {.ids = pinned_ids_, .positions = {}}, std::exchange(pinned_tokens_, 0));
  }
  int pins() const { return pins_; }

 private:
  kvcache::CacheManager* const cache_;
  std::vector<TokenId> pinned_ids_;
  int32_t pinned_tokens_ = 0;
  int pins_ = 0;
};

// Requests come, are cancelled and time out at random turns, in a pool that is always too small,
// steps fail now and then. What is not disturbed gets what it gets alone; nothing is left behind.
void RunRandomly(LoopOptions options, uint32_t seed, int operations, Others others = {}) {
  options.planner = &PlanOfOrderedQueue;
  std::mt19937 random(RandomSeed(seed));
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  LoopHarness h(options);
  LoopHarness alone({.prefix_cache = false});
  std::vector<Live> live;
  int64_t undisturbed = 0;
  int64_t disturbed = 0;
  int64_t computed_for_somebody = 0;
  Operator operator_of_cache(h.cache.get());
  const auto settle = [&](Live& one) {
    computed_for_somebody += one.output.usage.computed_tokens;
    // The first tokens of all beams come of one row.
    if (one.request.beam.has_value()) computed_for_somebody -= one.request.sequences() - 1;
    if (one.disturbed || !one.output.status.ok()) {
      ++disturbed;
      if (!one.disturbed) {
        ASSERT_TRUE(MayFail(one.output.status, others)) << one.output.status;
      }
      return;
    }
    ++undisturbed;
    ExpectSame(one.output, alone.Run(one.request));
  };
  for (int i = 0; i < operations; ++i) {
    const int32_t action = below(20);
    if (action < 3 && live.size() < 30) {
      Live one{.request = RandomRequest(random)};
      if (others.several_tenants) ChooseTenant(random, &one.request);
      if (below(10) == 0) {
        one.request.timeout_s = 1 + below(3);
        one.disturbed = true;
      }
      // Now and then by several at once.
      for (int32_t n = below(10) == 0 ? 1 + below(4) : 1; n > 0; --n) {
        live.push_back(one);
        live.back().stream = h.Submit(one.request);
        if (live.back().stream == nullptr) live.pop_back();
      }
    } else if (action == 3 && below(3) == 0 && !live.empty()) {
      Live& one = live[static_cast<size_t>(below(static_cast<uint32_t>(live.size())))];
      one.disturbed = true;
      one.stream->Cancel();
    } else if (action == 4 && below(10) == 0) {
      h.clock.Advance(std::chrono::seconds(1));
    } else if (action == 5 && below(20) == 0) {
      // Without memory steps stay small for a thousand or two: seldom, or there would be no others.
      h.runner.FailStep(h.runner.launched() + 1, below(10) != 0
                                                     ? absl::UnavailableError("once")
                                                     : absl::ResourceExhaustedError("once"));
    } else if (action == 6 && others.operators && below(5) == 0) {
      const bool of_live = !live.empty() && below(2) == 0;
      const size_t one =
          of_live ? static_cast<size_t>(below(static_cast<uint32_t>(live.size()))) : 0;
      operator_of_cache.Act(random, of_live ? live[one].request : RandomRequest(random));
    } else {
      h.loop.Turn();
    }
    ASSERT_EQ(h.cache->CheckInvariants(), absl::OkStatus());
    ASSERT_FALSE(::testing::Test::HasFailure()) << "operation " << i;
    for (size_t k = 0; k < live.size();) {
      ReadInto(*live[k].stream, h.tokenizer, &live[k].output);
      if (!live[k].output.finished) {
        ++k;
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(settle(live[k])) << "operation " << i;
      live.erase(live.begin() + static_cast<ptrdiff_t>(k));
    }
  }
  h.RunUntilIdle();
  for (Live& one : live) {
    ReadInto(*one.stream, h.tokenizer, &one.output);
    ASSERT_TRUE(one.output.finished);
    ASSERT_NO_FATAL_FAILURE(settle(one));
  }
  operator_of_cache.Unpin();
  h.CheckIdle();
  alone.CheckIdle();
  // Nobody pays for what was computed for others, or again.
  EXPECT_LE(computed_for_somebody,
            h.loop.stats().computed_prompt_tokens_total + h.loop.stats().generated_tokens_total);
  EXPECT_EQ(h.loop.health(), absl::OkStatus());
  if (!others.must_meet) return;
  if (others.operators) {
    EXPECT_GT(operator_of_cache.pins(), operations / 10000);
  }
  EXPECT_GT(undisturbed, operations / 30);
  EXPECT_GT(disturbed, operations / 400);
  EXPECT_GT(h.loop.stats().preemptions_total, operations / 400);
  if (options.prefix_cache) {
    EXPECT_GT(h.loop.stats().cached_prompt_tokens_total, operations / 10);
    EXPECT_GT(h.loop.stats().kv_evicted_chunks_total, operations / 100);
  }
}

TEST(EngineLoopRandomTest, OperationsOneStepInFlight) {
  RunRandomly({.num_chunks = 14, .max_sequences = 6, .step_token_budget = 24}, 1, RandomSteps());
}

TEST(EngineLoopRandomTest, OperationsTwoStepsInFlight) {
  RunRandomly({.num_chunks = 14, .max_sequences = 6, .step_token_budget = 24, .max_in_flight = 2},
              2, RandomSteps());
}

// Most of the requests fill the pool alone.
TEST(EngineLoopRandomTest, InAPoolOfFewChunks) {
  RunRandomly({.num_chunks = 6, .max_sequences = 6, .step_token_budget = 24, .max_in_flight = 2}, 6,
              RandomSteps());
}

TEST(EngineLoopRandomTest, WithoutPrefixCache) {
  RunRandomly({.num_chunks = 14,
               .max_sequences = 6,
               .step_token_budget = 24,
               .max_in_flight = 2,
               .prefix_cache = false},
              5, RandomSteps());
}

TEST(EngineLoopRandomTest, UnderPriorities) {
  RunRandomly({.num_chunks = 14,
               .max_sequences = 5,
               .step_token_budget = 16,
               .max_in_flight = 2,
               .policy = Policy::kPriority},
              3, RandomSteps());
}

TEST(EngineLoopRandomTest, UnderLongestPrefix) {
  RunRandomly({.num_chunks = 14,
               .max_sequences = 8,
               .step_token_budget = 8,
               .policy = Policy::kLongestPrefix},
              4, RandomSteps());
}

// They make way for one another, and wait for what others compute.
TEST(EngineLoopRandomTest, OfSeveralTenants) {
  RunRandomly({.num_chunks = 14,
               .max_sequences = 5,
               .step_token_budget = 16,
               .max_in_flight = 2,
               .policy = Policy::kPriority},
              7, RandomSteps(), {.several_tenants = true});
}

TEST(EngineLoopRandomTest, OfSeveralTenantsInTheirOrder) {
  RunRandomly({.num_chunks = 14,
               .max_sequences = 5,
               .step_token_budget = 16,
               .max_in_flight = 2,
               .eviction = "s3fifo"},
              11, RandomSteps(), {.several_tenants = true, .operators = true});
}

// So little patience that most have aged.
TEST(EngineLoopRandomTest, WithOperatorsAndShortAgeing) {
  for (const Policy policy : {Policy::kPriority, Policy::kLongestPrefix}) {
    RunRandomly({.num_chunks = 14,
                 .max_sequences = 5,
                 .step_token_budget = 16,
                 .max_in_flight = 2,
                 .eviction = "lru",
                 .policy = policy,
                 .ageing_steps = 20},
                9, RandomSteps() / 2, {.operators = true});
  }
}

LoopOptions RandomOptions(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  static constexpr int32_t kChunkTokens[] = {1, 2, 4, 8, 16, 32, 64};
  static constexpr const char* kEvictions[] = {"reuse_rate", "lru", "s3fifo"};
  static constexpr Policy kPolicies[] = {Policy::kFcfs, Policy::kPriority, Policy::kLongestPrefix};
  LoopOptions options;
  options.chunk_tokens = kChunkTokens[below(std::size(kChunkTokens))];
  options.num_chunks = (64 + below(256)) / options.chunk_tokens;
  options.max_sequences = 1 + below(10);
  options.step_token_budget = options.max_sequences + below(2) * below(40);
  options.max_in_flight = 1 + below(2);
  options.prefix_cache = below(6) > 0;
  options.eviction = kEvictions[below(std::size(kEvictions))];
  options.policy = kPolicies[below(std::size(kPolicies))];
  if (below(2) == 0) options.ageing_steps = 1 + below(40);
  return options;
}

TEST(EngineLoopRandomTest, InAnySetting) {
  std::mt19937 random(RandomSeed(10));
  for (uint32_t seed = 100; seed < 140; ++seed) {
    const LoopOptions options = RandomOptions(random);
    const Others others{.several_tenants = random() % 3 == 0,
                        .operators = options.prefix_cache && random() % 3 == 0,
                        .must_meet = false};
    ASSERT_NO_FATAL_FAILURE(RunRandomly(options, seed, RandomSteps() / 20, others))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace refrain::engine
