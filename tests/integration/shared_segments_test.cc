// Chunk-first attention changes nothing (DESIGN sections 4 and 5): under engine.reproducible = on
// it is done for whole segments of 512 keys only, so prompts here begin with 1,024 to 2,100 common
// tokens, in a tree five levels deep. Ids and log-probability bits of requests that join, end, are
// cancelled and preempted at random are those that each gets alone, paged and without a prefix
// cache. (sharing_test has the same with short prompts and in many more settings.)

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend_factory.h"
#include "engine/create_engine.h"
#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "kernels/cpu/attention_tasks.h"
#include "tests/support/disturbing_planner.h"
#include "tests/support/forwarding_backend.h"
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
using kernels::kSegmentKeys;

constexpr int kLevels = 5;
constexpr int kLeaves = 16;  // two ways on from every level

// How many tokens a piece has. The second way at one of the levels behind the first is long: from
// the end of the common segments, or from a key inside the third, beyond the end of the fourth.
uint32_t PieceTokens(int leaf, int level, uint32_t random) {
  if (level == 0) return 2 * kSegmentKeys + 1 + random % 15;  // whole chunks: two segments
  const bool is_long = leaf % 2 == 1 ? level == 1 : leaf % 4 == 2 && level == 2;
  return is_long ? 2 * kSegmentKeys + random % 30 : 1 + random % 50;
}

Request LeafRequest(int leaf) {
  engine::TokenPrompt prompt;
  uint32_t path = 1;
  for (int level = 0; level < kLevels; ++level) {
    path = path * 2 + (level > 0 ? static_cast<uint32_t>(leaf) >> (level - 1) & 1 : 0);
    std::mt19937 random(path);
    const uint32_t length = PieceTokens(leaf, level, random());
    for (uint32_t i = 0; i < length; ++i) {
      prompt.ids.push_back(static_cast<TokenId>(3 + random() % 256));
    }
  }
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = leaf % 3 == 0 ? 0 : 0.9;
  request.sampling.seed = static_cast<uint64_t>(leaf);
  request.stop.max_tokens = 6 + leaf % 11;
  request.stop.ignore_eos = true;
  request.logprobs.top = 2;
  if (leaf % 8 == 5) request.n = 2;
  if (leaf == 7) {
    request.sampling = {.temperature = 0};
    request.best_of = 3;
    request.beam = engine::BeamParams{};
  }
  return request;
}

// Counts what the CPU back end does chunk-first: the tasks that it makes of a step, made once more
// of the same arguments. Told by the engine's thread, asked when nothing runs.
class ChunkFirstCounts {
 public:
  void Add(const kernels::ChunkAttentionArgs& args, int threads) {
    // Whether by keys or by rows says how shared keys are divided, not which are.
    tasks_.Plan(args, threads, /*shares_by_keys=*/true);
    for (const auto& task : tasks_.segment_tasks()) {
      const auto rows = tasks_.task_rows().subspan(
          static_cast<size_t>(task.row_begin),
          static_cast<size_t>(task.row_end) - static_cast<size_t>(task.row_begin));
      if (SlotOf(args, rows.front().row) == SlotOf(args, rows.back().row)) continue;
      for (int32_t key = task.begin; key < task.end; key += kSegmentKeys) {
        ++of_segment_.at(static_cast<size_t>(key / kSegmentKeys));
      }
    }
  }

  // Tasks about the segment's keys that had rows of two sequences or more.
  int64_t of_segment(size_t segment) const { return of_segment_.at(segment); }
  int64_t all() const { return std::accumulate(of_segment_.begin(), of_segment_.end(), 0); }

 private:
  static size_t SlotOf(const kernels::ChunkAttentionArgs& args, int32_t row) {
    const auto has_row = [&](const kernels::SlotStep& step) {
      return step.row_begin <= row && row < step.row_begin + step.num_rows;
    };
    return static_cast<size_t>(std::ranges::find_if(args.steps, has_row) - args.steps.begin());
  }

  kernels::cpu::AttentionTasks tasks_;
  std::array<std::atomic<int64_t>, 5> of_segment_ = {};
};

class CountingBackend final : public ForwardingBackend {
 public:
  CountingBackend(std::unique_ptr<kernels::Backend> on, ChunkFirstCounts* counts)
      : ForwardingBackend(std::move(on)), counts_(counts) {}

  void ChunkAttention(const kernels::ChunkAttentionArgs& args) override {
    if (args.layer == 0) counts_->Add(args, info().threads);
    ForwardingBackend::ChunkAttention(args);
  }

 private:
  ChunkFirstCounts* const counts_;
};

struct Setting {
  bool prefix_cache = true;
  AttentionModeOption mode = AttentionModeOption::kTwoPhase;
  int32_t chunk_tokens = 16;
  int32_t threads = 1;
  bool disturb = false;  // evict at every step, and preempt
};

class SharedSegments : public ::testing::TestWithParam<const char*> {
 protected:
  // Writes the model and computes each leaf alone.
  void SetUp() override {
    TinyModelOptions model;
    model.config.hidden_size = 128;
    model.config.num_heads = 16;
    model.config.num_kv_heads = 8;  // so many that a task may have two segments
    model.config.head_dim = model.config.rope.dim = 32;
    model.config.ffn_size = 256;
    model.config.max_context_tokens = 2304;
    const auto path = WriteTinyGguf(model, directory_.path());
    ASSERT_TRUE(path.ok()) << path.status();
    path_ = *path;
    ChunkFirstCounts counts;
    const auto engine =
        Start({.prefix_cache = false, .mode = AttentionModeOption::kPaged}, &counts);
    ASSERT_NE(engine, nullptr);
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      expected_.push_back(*ReadToEnd(**engine->Submit(LeafRequest(leaf))));
    }
    EXPECT_EQ(engine->stats().cached_prompt_tokens_total, 0);
    EXPECT_EQ(counts.all(), 0);
    EXPECT_NE(expected_[0], expected_[1]);
  }

  // `counts` outlives the engine.
  std::unique_ptr<Engine> Start(const Setting& setting, ChunkFirstCounts* counts) {
    EngineOptions options;
    options.model.path = path_;
    options.backend.kind = "cpu";
    options.backend.threads = setting.threads;
    options.step_token_budget = 256;
    options.max_sequences = 16;
    options.kv_cache.memory_bytes = 64 << 20;
    options.kv_cache.dtype = GetParam();
    options.kv_cache.chunk_tokens = setting.chunk_tokens;
    options.kv_cache.prefix_cache = setting.prefix_cache;
    options.attention_mode = setting.mode;
    options.reproducible = true;
    const auto choose =
        [counts](const engine::BackendOptions& backend) -> absl::StatusOr<engine::ChosenBackend> {
      auto chosen = engine::ChooseBackend(backend);
      if (chosen.ok()) {
        chosen->backend = std::make_unique<CountingBackend>(std::move(chosen->backend), counts);
      }
      return chosen;
    };
    absl::StatusOr<engine::EngineParts> parts = engine::MakeEngineParts(options, choose);
    if (!parts.ok()) {
      ADD_FAILURE() << parts.status();
      return nullptr;
    }
    if (setting.disturb) {
      parts->planner = DisturbingPlanner(parts->cache.get(), /*oldest_too=*/false, &preemptions_);
    }
    auto engine = engine::MakeEngine(*std::move(parts), options);
    if (!engine.ok()) ADD_FAILURE() << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  void RunAlone(Engine& engine, const std::string& what) {
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      const std::optional<StreamOutput> output = ReadToEnd(**engine.Submit(LeafRequest(leaf)));
      EXPECT_EQ(output, expected_[static_cast<size_t>(leaf)]) << what << ", alone, leaf " << leaf;
    }
  }

  // Requests of random leaves join and leave, up to 12 at once; what is not cancelled must be as
  // expected.
  void RunMix(Engine& engine, uint32_t seed, int joins, const std::string& what) {
    struct Live {
      int leaf;
      std::shared_ptr<TokenStream> stream;
      bool cancelled = false;
    };
    std::mt19937 random(seed);
    std::vector<Live> live;
    int compared = 0;
    const auto compare_one = [&] {
      const auto one = live.begin() + static_cast<ptrdiff_t>(random() % live.size());
      const std::optional<StreamOutput> output = ReadToEnd(*one->stream);
      if (output.has_value()) {
        EXPECT_EQ(*output, expected_[static_cast<size_t>(one->leaf)])
            << what << ", leaf " << one->leaf;
        ++compared;
      } else {
        EXPECT_TRUE(one->cancelled) << what << ", leaf " << one->leaf;
      }
      live.erase(one);
    };
    for (int i = 0; i < joins; ++i) {
      const int leaf = static_cast<int>(random() % kLeaves);
      auto stream = engine.Submit(LeafRequest(leaf));
      ASSERT_TRUE(stream.ok()) << stream.status();
      live.push_back({leaf, *stream});
      if (random() % 6 == 0) {
        Live& victim = live[random() % live.size()];
        victim.cancelled = true;
        victim.stream->Cancel();
      }
      while (live.size() >= 12) compare_one();
    }
    while (!live.empty()) compare_one();
    EXPECT_GT(compared, joins / 2);
  }

  const TemporaryDirectory directory_;
  std::string path_;
  std::vector<StreamOutput> expected_;
  PreemptionCounts preemptions_;  // of the disturbed engine
};

TEST_P(SharedSegments, ReadOnceForAllChangeNoBit) {
  uint32_t seed = 1;
  for (const bool prefix_cache : {true, false}) {
    for (const auto mode : {AttentionModeOption::kTwoPhase, AttentionModeOption::kPaged}) {
      const bool paged = mode == AttentionModeOption::kPaged;
      const std::string what =
          std::string(prefix_cache ? "shared" : "not shared") + (paged ? ", paged" : ", two_phase");
      ChunkFirstCounts counts;
      const auto engine = Start({.prefix_cache = prefix_cache, .mode = mode}, &counts);
      ASSERT_NE(engine, nullptr);
      if (prefix_cache) RunAlone(*engine, what);
      ASSERT_NO_FATAL_FAILURE(RunMix(*engine, seed++, prefix_cache ? 60 : 16, what));
      if (paged) {
        EXPECT_EQ(counts.all(), 0) << what;
      } else if (prefix_cache) {
        // Of what all begin with, and of what those have in common that took a long way.
        for (const size_t segment : {0, 1, 2, 3})
          EXPECT_GT(counts.of_segment(segment), 20) << segment;
      }
      if (prefix_cache) {
        EXPECT_GT(engine->stats().cached_prompt_tokens_total, 40 * 2 * kSegmentKeys);
      }
    }
  }
}

// In larger chunks, by several threads; and with what was evicted and preempted computed anew.
TEST_P(SharedSegments, ChangeNoBitHoweverTheyAreCutAndDisturbed) {
  for (const bool disturb : {false, true}) {
    ChunkFirstCounts counts;
    const auto engine = Start({.chunk_tokens = 64, .threads = 3, .disturb = disturb}, &counts);
    ASSERT_NE(engine, nullptr);
    const std::string what = disturb ? "preempted each step" : "three threads";
    ASSERT_NO_FATAL_FAILURE(RunMix(*engine, disturb ? 11 : 10, disturb ? 20 : 40, what));
    for (const size_t segment : {0, 1, 2, 3}) EXPECT_GT(counts.of_segment(segment), 5) << what;
    if (!disturb) continue;
    EXPECT_GT(engine->stats().preemptions_total, 30);
    EXPECT_GT(engine->stats().kv_evicted_chunks_total, 100);
    EXPECT_GT(preemptions_.preempting * 2, preemptions_.plans.load());
  }
}

INSTANTIATE_TEST_SUITE_P(KvTypes, SharedSegments, ::testing::Values("f16", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace refrain::testing
