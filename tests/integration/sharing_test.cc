// Sharing changes nothing (DESIGN sections 4 and 5): under engine.reproducible = on, ids and
// log-probability bits of requests that share prefixes in a tree five levels deep are those that
// each gets alone without a prefix cache - in two_phase and paged, on chunks of every size and on
// several threads, among up to 64 that join, end and are cancelled at random, and when all that may
// be evicted is evicted, and a running sequence preempted, at every step. Every weight type; some
// requests have several choices, beams or a salt.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_observer.h"
#include "engine/engine_parts.h"
#include "tests/support/disturbing_planner.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::AttentionModeOption;
using engine::Engine;
using engine::EngineOptions;
using engine::Request;
using engine::TokenId;
using engine::TokenStream;
using kernels::DType;

constexpr int kLevels = 5;
constexpr int kLeaves = 24;

// Leaf `leaf` of a tree: a path of pieces, each chosen among two or three by the digits of the
// leaf.
Request LeafRequest(int leaf) {
  engine::TokenPrompt prompt;
  uint32_t path = 1;
  int rest = leaf;
  for (int level = 0; level < kLevels; ++level) {
    path = path * 3 + static_cast<uint32_t>(level == 0 ? 0 : rest % 2);
    if (level > 0) rest /= 2;
    if (level + 1 == kLevels) path = path * 64 + static_cast<uint32_t>(leaf);
    std::mt19937 random(path);
    const uint32_t length = 1 + random() % (level == 0 ? 300 : 70);
    for (uint32_t i = 0; i < length; ++i) {
      prompt.ids.push_back(static_cast<TokenId>(3 + random() % 256));
    }
  }
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = leaf % 3 == 0 ? 0 : 0.9;
  request.sampling.seed = static_cast<uint64_t>(leaf);
  request.stop.max_tokens = 4 + leaf % 13;
  request.stop.ignore_eos = true;
  request.logprobs.top = 2;
  if (leaf % 5 == 0) request.logprobs.prompt_top = 1;
  switch (leaf % 8) {
    case 1:
      request.n = 2;
      break;
    case 2:
      request.best_of = 3;
      break;
    case 3:
      request.sampling = {.temperature = 0};
      request.best_of = 3;
      request.beam = engine::BeamParams{};
      break;
    case 4:
      request.cache_salt = "of its own";
      break;
    default:
      break;
  }
  return request;
}

struct Setting {
  bool prefix_cache = true;
  AttentionModeOption mode = AttentionModeOption::kTwoPhase;
  int32_t chunk_tokens = 16;
  int32_t threads = 1;  // many small steps: threads would only wait for each other
  // Evict at every step, and preempt: the oldest is spared, or with nothing left of it each time it
  // would never end.
  bool disturb = false;
  bool disturb_oldest = false;  // at every second step, and now and then the oldest as well
  std::atomic<size_t>* gather = nullptr;  // takes all places at once; the most that ever ran
};

struct Mix {
  uint32_t seed;
  int joins;
  std::string what;
  int at_once = 0;            // of the joins
  bool beams = true;          // some requests have beams
  bool cancels_held = false;  // now and then one that waits for what another computes
};

// Counts cancelled requests by what they did then, and stops the engine where one can be cancelled
// that is held. Told by the engine's thread, asked by the test's.
class CancelWatch final : public engine::EngineObserver {
 public:
  int64_t queued() const { return waited_ - held_; }
  int64_t held() const { return held_; }  // while another computed their prefix
  int64_t prefilling() const { return prefilling_; }
  int64_t decoding() const { return decoding_; }

  // The engine stops before the first plan in which a request is held that comes from now on; until
  // then it waits a little before each plan, so that the request comes in time.
  void StopAtHeld() {
    newest_before_ = newest_.load();
    stops_ = true;
  }
  // False when it has not soon, and will not: the request came too late.
  bool WaitUntilStopped() {
    if (stopped_.try_acquire_for(std::chrono::seconds(1))) return true;
    if (stops_.exchange(false)) return false;
    stopped_.acquire();
    return true;
  }
  void GoOn() { goes_on_.release(); }

  // Before each plan. One that was held in it is not admitted before the next.
  void Look(const engine::SchedulerSnapshot& snapshot) {
    const auto waits = [&](engine::SequenceId id) {
      const auto entry = engine::FindEntry(snapshot.waiting, id);
      return entry != snapshot.waiting.end() && entry->sequence == id;
    };
    for (const engine::SequenceId id : held_before_) held_ += waits(id) ? 0 : 1;
    held_before_.clear();
    for (const engine::WaitingEntry& entry : snapshot.waiting) {
      newest_ = std::max(newest_.load(), entry.sequence);
      if (entry.held) held_before_.push_back(entry.sequence);
    }
    if (stops_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (held_before_.empty() || held_before_.back() <= newest_before_.load()) return;
    if (!stops_.exchange(false)) return;
    stopped_.release();
    goes_on_.acquire();
  }

  void OnRequestEnd(const engine::RequestObservation& request) override {
    if (request.status != absl::StatusCode::kCancelled) return;
    ++(!request.queue_s.has_value()         ? waited_
       : !request.first_token_s.has_value() ? prefilling_
                                            : decoding_);
  }
  void OnStep(const engine::StepObservation&) override {}
  void OnArrival(int32_t) override {}
  void OnFirstScheduled(double, int32_t, int32_t) override {}
  void OnFirstToken(double, int32_t, int32_t) override {}
  void OnFurtherFirstToken(double) override {}
  void OnTokenGap(double) override {}
  void OnTokens(int32_t) override {}

 private:
  std::vector<engine::SequenceId> held_before_;
  std::atomic<int64_t> waited_ = 0, held_ = 0, prefilling_ = 0, decoding_ = 0;
  std::atomic<engine::SequenceId> newest_{}, newest_before_{};
  std::atomic<bool> stops_ = false;
  std::binary_semaphore stopped_{0}, goes_on_{0};
};

// Plans as the scheduler does, but lets nobody decode before all places are taken.
class GatheringPlanner {
 public:
  explicit GatheringPlanner(std::atomic<size_t>* most_running) : most_running_(most_running) {}

  engine::StepPlan operator()(const engine::SchedulerSnapshot& snapshot) {
    engine::StepPlan plan = engine::Plan(snapshot);
    *most_running_ = std::max(most_running_->load(), snapshot.running.size());
    gathered_ |= snapshot.running.size() == static_cast<size_t>(snapshot.limits.max_sequences);
    if (gathered_) return plan;
    const auto decodes = [&](const engine::StepWork& work) {
      return std::ranges::any_of(snapshot.running, [&](const engine::RunningEntry& one) {
        return one.sequence == work.sequence && one.runnable_tokens == 1;
      });
    };
    engine::StepPlan gathering = plan;
    std::erase_if(gathering.work, decodes);
    return gathering.work.empty() ? plan : gathering;
  }

 private:
  std::atomic<size_t>* const most_running_;
  bool gathered_ = false;
};

class Sharing : public ::testing::TestWithParam<DType> {
 protected:
  // Writes the model and computes each leaf alone.
  void SetUp() override {
    TinyModelOptions model;
    model.matrix_dtype = GetParam();
    const auto path = WriteTinyGguf(model, directory_.path());
    ASSERT_TRUE(path.ok()) << path.status();
    path_ = *path;
    const auto engine = Start({.prefix_cache = false});
    ASSERT_NE(engine, nullptr);
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      expected_.push_back(*ReadToEnd(**engine->Submit(LeafRequest(leaf))));
    }
    EXPECT_EQ(engine->stats().cached_prompt_tokens_total, 0);
    EXPECT_EQ(engine->stats().kv_cached_chunks, 0);
    EXPECT_NE(expected_[0], expected_[1]);
  }

  std::unique_ptr<Engine> Start(const Setting& setting) {
    EngineOptions options;
    options.model.path = path_;
    options.backend.threads = setting.threads;
    options.step_token_budget = 96;
    options.max_sequences = 64;
    options.kv_cache.memory_bytes = 64 << 20;
    options.kv_cache.chunk_tokens = setting.chunk_tokens;
    options.kv_cache.prefix_cache = setting.prefix_cache;
    options.attention_mode = setting.mode;
    options.reproducible = true;
    absl::StatusOr<engine::EngineParts> parts = engine::MakeEngineParts(options);
    if (!parts.ok()) {
      ADD_FAILURE() << parts.status();
      return nullptr;
    }
    if (setting.disturb) {
      parts->planner = DisturbingPlanner(parts->cache.get(), setting.disturb_oldest, &preemptions_);
    } else {
      engine::PlanFunction plan = engine::Plan;
      if (setting.gather != nullptr) plan = GatheringPlanner(setting.gather);
      parts->planner = [this, plan](const engine::SchedulerSnapshot& snapshot) {
        cancels_.Look(snapshot);
        return plan(snapshot);
      };
      options.observer = &cancels_;
    }
    auto engine = engine::MakeEngine(*std::move(parts), options);
    if (!engine.ok()) ADD_FAILURE() << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  struct Live {
    int leaf;
    std::shared_ptr<TokenStream> stream;
    bool cancelled = false;
  };

  // Requests of random leaves join and leave, the first `at_once` all together; what is not
  // cancelled must be as expected.
  void RunMix(Engine& engine, const Mix& mix) {
    std::mt19937 random(mix.seed);
    std::vector<Live> live;
    int compared = 0;
    const auto compare_first = [&] {
      compared += Compare(live.front(), mix.what) ? 1 : 0;
      live.erase(live.begin());
    };
    for (int i = 0; i < mix.joins; ++i) {
      int leaf = static_cast<int>(random() % kLeaves);
      if (!mix.beams && LeafRequest(leaf).beam.has_value()) ++leaf;
      auto stream = engine.Submit(LeafRequest(leaf));
      ASSERT_TRUE(stream.ok()) << stream.status();
      live.push_back({leaf, *stream});
      if (i < mix.at_once) continue;
      if (random() % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      }
      if (random() % 5 == 0) {  // at any stage: queued, prefilling, decoding, ended
        Live& victim = live[random() % live.size()];
        victim.cancelled = true;
        victim.stream->Cancel();
      }
      if (mix.cancels_held && i % 20 == 10) {
        ASSERT_NO_FATAL_FAILURE(CancelHeld(engine, i, &live));
      }
      while (live.size() >= 64 || (random() % 3 == 0 && live.size() > 8)) compare_first();
    }
    while (!live.empty()) compare_first();
    EXPECT_GT(compared, mix.joins / 2);
  }

  // Two that share what nobody has computed: the second is cancelled while the first computes it.
  void CancelHeld(Engine& engine, int number, std::vector<Live>* live) {
    constexpr int kLeaf = 6;
    Request request = LeafRequest(kLeaf);
    request.cache_salt = "of number " + std::to_string(number);
    cancels_.StopAtHeld();
    for (const bool cancelled : {false, true}) {
      auto stream = engine.Submit(request);
      ASSERT_TRUE(stream.ok()) << stream.status();
      live->push_back({kLeaf, *stream, cancelled});
    }
    const bool stopped = cancels_.WaitUntilStopped();
    live->back().stream->Cancel();
    if (stopped) cancels_.GoOn();
  }

  // Reads it to its end; false when it was cancelled.
  bool Compare(const Live& one, const std::string& what) {
    const std::optional<StreamOutput> output = ReadToEnd(*one.stream);
    if (!output.has_value()) {
      EXPECT_TRUE(one.cancelled) << what << ", leaf " << one.leaf;
      return false;
    }
    EXPECT_EQ(*output, expected_[static_cast<size_t>(one.leaf)]) << what << ", leaf " << one.leaf;
    cancelled_at_end_ += one.cancelled ? 1 : 0;
    return true;
  }

  const TemporaryDirectory directory_;
  std::string path_;
  std::vector<StreamOutput> expected_;
  PreemptionCounts preemptions_;  // of the disturbed engines
  CancelWatch cancels_;           // of the others
  int64_t cancelled_at_end_ = 0;
};

class SharingOfOtherTypes : public Sharing {};
class SharingInEverySetting : public Sharing {};

// What differs between types is the products: few rows or many, as sharing has it.
TEST_P(SharingOfOtherTypes, ChangesNoBit) {
  const auto shared = Start({.threads = 2});
  ASSERT_NE(shared, nullptr);
  RunMix(*shared, {1, 48, "shared"});
  EXPECT_GT(shared->stats().cached_prompt_tokens_total, 5000);
  const auto disturbed = Start({.disturb = true});
  ASSERT_NE(disturbed, nullptr);
  RunMix(*disturbed, {2, 12, "preempted each step"});
  EXPECT_GT(disturbed->stats().preemptions_total, 20);
}

TEST_P(SharingInEverySetting, ChangesNoBit) {
  uint32_t seed = 1;
  for (const bool prefix_cache : {true, false}) {
    for (const auto mode : {AttentionModeOption::kTwoPhase, AttentionModeOption::kPaged}) {
      const auto engine = Start({.prefix_cache = prefix_cache, .mode = mode});
      ASSERT_NE(engine, nullptr);
      RunMix(*engine, {.seed = seed++,
                       .joins = prefix_cache ? 100 : 40,
                       .what = std::string(prefix_cache ? "shared" : "not shared") +
                               (mode == AttentionModeOption::kPaged ? ", paged" : ", two_phase"),
                       .cancels_held = prefix_cache});
      if (prefix_cache) {
        EXPECT_GT(engine->stats().cached_prompt_tokens_total, 10000);
      }
    }
  }
  // The chunk's size decides where matches end, and so what is copied and what is computed again.
  for (const int32_t chunk_tokens : {32, 64, 128}) {
    const auto engine = Start({.chunk_tokens = chunk_tokens, .threads = 3});
    ASSERT_NE(engine, nullptr);
    RunMix(*engine, {seed++, 40, "chunks of " + std::to_string(chunk_tokens)});
    EXPECT_GT(engine->stats().cached_prompt_tokens_total, 3000);
  }
  std::atomic<size_t> most_running = 0;
  const auto full = Start({.gather = &most_running});
  ASSERT_NE(full, nullptr);
  RunMix(*full, {.seed = seed++, .joins = 80, .what = "all places taken", .at_once = 63});
  EXPECT_EQ(most_running, 64u);
  for (const bool oldest : {false, true}) {
    const auto mode = oldest ? AttentionModeOption::kPaged : AttentionModeOption::kTwoPhase;
    const auto engine = Start({.mode = mode, .disturb = true, .disturb_oldest = oldest});
    ASSERT_NE(engine, nullptr);
    const std::string what = oldest ? "the oldest preempted" : "preempted each step";
    // Beams wait for one another: not each plan of theirs can preempt.
    if (!oldest) RunMix(*engine, {.seed = seed++, .joins = 30, .what = what, .beams = false});
    RunMix(*engine, {seed++, 30, what});
    const engine::EngineStats stats = engine->stats();
    EXPECT_GT(stats.preemptions_total, 30);
    EXPECT_GT(stats.kv_evicted_chunks_total, 200);
    if (!oldest) {
      EXPECT_GE(preemptions_.preempting * 100, preemptions_.plans * 95);
    }
  }
  EXPECT_GT(cancels_.queued(), 0);
  EXPECT_GT(cancels_.held(), 0);
  EXPECT_GT(cancels_.prefilling(), 0);
  EXPECT_GT(cancels_.decoding(), 0);
  EXPECT_GT(cancelled_at_end_, 0);
}

std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return std::string(kernels::Traits(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(OtherWeightTypes, SharingOfOtherTypes,
                         ::testing::Values(DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ5_0,
                                           DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K),
                         TypeName);
INSTANTIATE_TEST_SUITE_P(SomeWeightTypes, SharingInEverySetting,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kQ4_1), TypeName);

}  // namespace
}  // namespace refrain::testing
