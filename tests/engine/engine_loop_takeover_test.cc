#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/engine/thirty_two_requests.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::LoopHarness;
using ::refrain::testing::LoopOptions;
using ::refrain::testing::Prompt;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;

// The producer goes away in the middle of its prompt while 31 wait: nothing it finished is computed
// again, one of the others goes on from there.
class TakeOverTest : public ::testing::TestWithParam<int> {
 protected:
  LoopOptions Options() const { return OptionsOf32(GetParam()); }
  void SubmitAll(LoopHarness& h, int32_t others = 0) {
    Request first = TokenRequest(Prompt(2048), 8);
    first.timeout_s = 10;
    streams_.push_back(h.Submit(first));
    for (int i = 0; i < 31; ++i) streams_.push_back(h.Submit(TokenRequest(Prompt(2048), 8)));
    while (h.loop.stats().computed_prompt_tokens_total < 1000) h.loop.Turn();
    EXPECT_EQ(h.loop.held_sequences(), 31u);
    EXPECT_EQ(h.loop.stats().running_sequences, 1 + others);
  }
  // So few chunks that SubmitOlder's sequences come to need the producer's.
  LoopOptions TightOptions() const {
    LoopOptions options = Options();
    options.num_chunks = 150;
    options.max_sequences = 40;
    options.step_token_budget = 40;
    return options;
  }
  static std::vector<std::shared_ptr<TokenStream>> SubmitOlder(LoopHarness& h) {
    std::vector<std::shared_ptr<TokenStream>> older;
    for (int32_t i = 0; i < 8; ++i) {
      older.push_back(h.Submit(TokenRequest(Prompt(16, 9 + i), 100)));
    }
    for (int i = 0; i < 5; ++i) h.loop.Turn();
    return older;
  }
  // What is computed again: rows of steps in flight when one was preempted, and what was evicted.
  static int64_t Lost(const EngineStats& stats) {
    return 2 * 40 * stats.preemptions_total + 16 * stats.kv_evicted_chunks_total;
  }
  void CheckOthers(LoopHarness& h, int64_t most_computed) {
    h.RunUntilIdle();
    EXPECT_LE(h.loop.stats().computed_prompt_tokens_total, most_computed);
    const RequestOutput alone = Alone(TokenRequest(Prompt(2048), 8));
    for (size_t i = 1; i < streams_.size(); ++i) {
      const RequestOutput output = h.Read(streams_[i]);
      EXPECT_EQ(output.status, absl::OkStatus());
      EXPECT_EQ(output.choices.at(0).tokens, alone.choices.at(0).tokens);
    }
    h.CheckIdle();
  }
  std::vector<std::shared_ptr<TokenStream>> streams_;
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, TakeOverTest, ::testing::Values(1, 2));

// Rows of steps in flight when the producer went may be lost.
constexpr int64_t kOnce = 2048 + 31;
constexpr int64_t kInFlight = 2 * 256;

TEST_P(TakeOverTest, WhenTheProducerIsCancelled) {
  LoopHarness h(Options());
  SubmitAll(h);
  streams_[0]->Cancel();
  CheckOthers(h, kOnce + kInFlight);
}

TEST_P(TakeOverTest, WhenTheProducerTimesOut) {
  LoopHarness h(Options());
  SubmitAll(h);
  h.clock.Advance(std::chrono::seconds(11));
  CheckOthers(h, kOnce + kInFlight);
  EXPECT_EQ(h.Read(streams_[0]).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(TakeOverTest, WhenTheProducerFails) {
  LoopHarness h(Options());
  SubmitAll(h);
  h.runner.FailStep(h.runner.launched() + 1, absl::UnavailableError("once"));
  CheckOthers(h, kOnce + kInFlight);
  EXPECT_EQ(h.Read(streams_[0]).status.code(), absl::StatusCode::kUnavailable);
}

// Older sequences that decode need chunks: the producer, the youngest that runs, gives up.
TEST_P(TakeOverTest, WhenTheProducerIsPreempted) {
  LoopHarness h(TightOptions());
  const auto older = SubmitOlder(h);
  SubmitAll(h, 8);
  EXPECT_EQ(h.loop.stats().preemptions_total, 0);
  CheckOthers(h, kOnce + 8 * 16 + 1000);
  const EngineStats stats = h.loop.stats();
  EXPECT_GT(stats.preemptions_total, 0);
  EXPECT_LE(stats.computed_prompt_tokens_total, kOnce + 8 * 16 + Lost(stats));
}

// Another key's prompt, served less, takes all rows: the producer keeps what it has and goes on
// later, nobody computes its prompt beside it. Who waits for it lends it a turn, and so takes it
// along.
TEST_P(TakeOverTest, WhenTheProducerRunsOutOfBudget) {
  LoopOptions options = Options();
  options.max_sequences = 40;
  std::map<SequenceId, int32_t> rows;
  options.planner = [&rows](const SchedulerSnapshot& snapshot) {
    StepPlan plan = Plan(snapshot);
    for (const StepWork& work : plan.work) rows[work.sequence] += work.num_tokens;
    return plan;
  };
  LoopHarness h(options);
  SubmitAll(h);
  const SequenceId producer = rows.begin()->first;
  const auto submit_of = [&h](const std::string& tenant, const std::vector<int32_t>& prompt) {
    Request request = TokenRequest(prompt, 8);
    request.tenant = tenant;
    return h.Submit(std::move(request));
  };
  const auto other = submit_of("b", Prompt(3000, 5));
  rows.clear();
  for (int i = 0; i < 3; ++i) h.loop.Turn();
  EXPECT_EQ(rows.count(producer), 0u);
  EXPECT_EQ(rows.size(), 1u) << "all are the other's";
  EXPECT_EQ(h.loop.held_sequences(), 31u);
  streams_.push_back(submit_of("c", Prompt(2048)));
  rows.clear();
  h.loop.Turn();
  EXPECT_EQ(h.loop.held_sequences(), 32u);
  EXPECT_EQ(rows, (std::map<SequenceId, int32_t>{{producer, 256}}));
  CheckOthers(h, kOnce + 1 + 3000);
  EXPECT_EQ(h.Read(other).usage.completion_tokens, 8);
}

// Under priorities (lower comes first) the best waiter goes on, wherever it stands in the queue;
// when it goes away as well, the next best does.
class BestTakesOverTest : public TakeOverTest {
 protected:
  static constexpr size_t kBest = 20, kSecond = 9;

  static LoopOptions WithPriorities(LoopOptions options) {
    options.policy = Policy::kPriority;
    return options;
  }
  // The first, with the worst priority, computes, and 31 wait.
  void SubmitAll(LoopHarness& h, int64_t computed) {
    streams_.push_back(h.Submit(Of(5, 10)));
    h.loop.Turn();
    for (size_t i = 1; i < 32; ++i) {
      streams_.push_back(h.Submit(i == kBest     ? Of(1, 20)
                                  : i == kSecond ? Of(2, 90)
                                                 : Of(3 + static_cast<int32_t>(i) % 4, 90)));
    }
    TurnUntilComputed(h, computed);
    EXPECT_EQ(h.loop.held_sequences(), 31u);
  }
  static void TurnUntilComputed(LoopHarness& h, int64_t tokens) {
    while (h.loop.stats().computed_prompt_tokens_total < tokens) h.loop.Turn();
  }
  void ReadAll(LoopHarness& h) {
    for (size_t i = 0; i < streams_.size(); ++i) ReadInto(*streams_[i], h.tokenizer, &outputs_[i]);
  }
  // Those that have tokens once anyone has.
  std::vector<size_t> FirstToHaveTokens(LoopHarness& h) {
    std::vector<size_t> some;
    while (some.empty() && h.loop.Turn()) {
      ReadAll(h);
      for (const auto& [i, output] : outputs_) {
        if (output.usage.completion_tokens > 0) some.push_back(i);
      }
    }
    return some;
  }
  void CheckOutputs(LoopHarness& h, const std::set<size_t>& gone) {
    h.RunUntilIdle();
    ReadAll(h);
    const std::vector<int32_t> alone = Alone(TokenRequest(Prompt(2048), 8)).choices.at(0).tokens;
    for (auto& [i, output] : outputs_) {
      EXPECT_EQ(output.status.ok(), gone.count(i) == 0) << i << " " << output.status;
      if (gone.count(i) == 0) {
        EXPECT_EQ(output.choices.at(0).tokens, alone) << i;
      }
    }
    h.CheckIdle();
  }

  std::map<size_t, RequestOutput> outputs_;

 private:
  static Request Of(int32_t priority, double timeout_s) {
    Request one = TokenRequest(Prompt(2048), 8);
    one.priority = priority;
    one.timeout_s = timeout_s;
    return one;
  }
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, BestTakesOverTest, ::testing::Values(1, 2));

TEST_P(BestTakesOverTest, HoweverTheProducerGoesAway) {
  using GoAway = std::function<void(LoopHarness&, TokenStream&)>;
  const std::pair<const char*, GoAway> ways[] = {
      {"cancelled", [](LoopHarness&, TokenStream& stream) { stream.Cancel(); }},
      {"late", [](LoopHarness& h, TokenStream&) { h.clock.Advance(std::chrono::seconds(11)); }},
      {"failed", [](LoopHarness& h, TokenStream&) {
         h.runner.FailStep(h.runner.launched() + 1, absl::UnavailableError("once"));
       }}};
  for (const auto& [name, go_away] : ways) {
    SCOPED_TRACE(name);
    streams_.clear();
    outputs_.clear();
    LoopHarness h(WithPriorities(Options()));
    SubmitAll(h, 700);
    for (const size_t producer : {size_t{0}, kBest}) {
      EXPECT_EQ(h.loop.stats().running_sequences, 1);
      EXPECT_EQ(h.loop.held_sequences(), producer == 0 ? 31u : 30u);
      go_away(h, *streams_[producer]);
      TurnUntilComputed(h, h.loop.stats().computed_prompt_tokens_total + 400);
    }
    // The one that runs now gets its first token before the others start.
    EXPECT_EQ(FirstToHaveTokens(h), std::vector<size_t>{kSecond});
    CheckOutputs(h, {0, kBest});
    EXPECT_LE(h.loop.stats().computed_prompt_tokens_total, kOnce + 2 * kInFlight);
  }
}

// It waits behind the best, then, although it came first and computed most.
TEST_P(BestTakesOverTest, WhenTheProducerIsPreempted) {
  LoopHarness h(WithPriorities(TightOptions()));
  const auto older = SubmitOlder(h);
  SubmitAll(h, 1000);
  EXPECT_EQ(h.loop.stats().preemptions_total, 0);
  EXPECT_EQ(FirstToHaveTokens(h), std::vector<size_t>{kBest});
  const EngineStats stats = h.loop.stats();
  EXPECT_GT(stats.preemptions_total, 0);
  EXPECT_LE(stats.computed_prompt_tokens_total, kOnce + 8 * 16 + Lost(stats));
  CheckOutputs(h, {});
}

}  // namespace
}  // namespace refrain::engine
