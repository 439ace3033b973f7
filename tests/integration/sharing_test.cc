// Sharing changes nothing (DESIGN sections 4 and 5): under engine.reproducible = on, ids and
// log-probability bits of requests that share prefixes in a tree five levels deep are those that
// each gets alone without a prefix cache - in two_phase and paged, among up to 64 that join, end
// and are cancelled at random, and when all that may be evicted is evicted at every step and a
// running sequence preempted at every second one.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_parts.h"
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
  return request;
}

struct Setting {
  bool prefix_cache = true;
  AttentionModeOption mode = AttentionModeOption::kTwoPhase;
  int64_t memory_bytes = 64 << 20;
  bool disturb = false;  // evict at every step, preempt at every second one
};

std::unique_ptr<Engine> Start(const std::string& path, const Setting& setting) {
  EngineOptions options;
  options.model.path = path;
  options.backend.threads = 1;  // many small steps: threads would only wait for each other
  options.step_token_budget = 96;
  options.max_sequences = 64;
  options.kv_cache.memory_bytes = setting.memory_bytes;
  options.kv_cache.chunk_tokens = 16;
  options.kv_cache.prefix_cache = setting.prefix_cache;
  options.attention_mode = setting.mode;
  options.reproducible = true;
  absl::StatusOr<engine::EngineParts> parts = engine::MakeEngineParts(options);
  if (!parts.ok()) {
    ADD_FAILURE() << parts.status();
    return nullptr;
  }
  if (setting.disturb) {
    parts->planner = [cache = parts->cache.get(),
                      step = 0](const engine::SchedulerSnapshot& snapshot) mutable {
      cache->EvictAll();
      engine::StepPlan plan = engine::Plan(snapshot);
      // The oldest is spared, but now and then: with nothing left of it each time it would never
      // end.
      const size_t running = snapshot.running.size();
      if (++step % (running > 1 ? 2 : 40) != 0 || running == 0 || !plan.preempt.empty())
        return plan;
      const size_t victim = running == 1 ? 0 : 1 + static_cast<size_t>(step / 2) % (running - 1);
      const engine::SequenceId id = snapshot.running[victim].sequence;
      std::erase_if(plan.work, [&](const engine::StepWork& work) {
        return work.sequence == id ||
               std::count(plan.admit.begin(), plan.admit.end(), work.sequence) > 0;
      });
      plan.admit.clear();
      plan.preempt.push_back(id);
      return plan;
    };
  }
  auto engine = engine::MakeEngine(*std::move(parts), options);
  if (!engine.ok()) ADD_FAILURE() << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Requests of random leaves join and leave; what is not cancelled must be as expected.
void RunMix(Engine& engine, const std::vector<StreamOutput>& expected, uint32_t seed, int joins,
            const std::string& what) {
  std::mt19937 random(seed);
  struct Live {
    int leaf;
    std::shared_ptr<TokenStream> stream;
    bool cancelled = false;
  };
  std::vector<Live> live;
  int compared = 0;
  for (int i = 0; i < joins; ++i) {
    const int leaf = static_cast<int>(random() % kLeaves);
    auto stream = engine.Submit(LeafRequest(leaf));
    ASSERT_TRUE(stream.ok()) << stream.status();
    live.push_back({leaf, *stream});
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    if (random() % 5 == 0) {  // at any stage: queued, prefilling, decoding, ended
      Live& victim = live[random() % live.size()];
      victim.cancelled = true;
      victim.stream->Cancel();
    }
    while (live.size() >= 64 || (random() % 3 == 0 && live.size() > 8)) {
      Live& first = live.front();
      const std::optional<StreamOutput> output = ReadToEnd(*first.stream);
      if (output.has_value()) {
        ++compared;
        EXPECT_EQ(*output, expected[static_cast<size_t>(first.leaf)])
            << what << ", leaf " << first.leaf;
      } else {
        EXPECT_TRUE(first.cancelled);
      }
      live.erase(live.begin());
    }
  }
  for (Live& one : live) {
    const std::optional<StreamOutput> output = ReadToEnd(*one.stream);
    if (!output.has_value()) continue;
    ++compared;
    EXPECT_EQ(*output, expected[static_cast<size_t>(one.leaf)]) << what << ", leaf " << one.leaf;
  }
  EXPECT_GT(compared, joins / 2);
}

class Sharing : public ::testing::TestWithParam<DType> {};

TEST_P(Sharing, ChangesNoBit) {
  TemporaryDirectory directory;
  TinyModelOptions model;
  model.matrix_dtype = GetParam();
  const auto path = WriteTinyGguf(model, directory.path());
  ASSERT_TRUE(path.ok()) << path.status();

  std::vector<StreamOutput> expected;
  {
    const auto engine = Start(*path, {.prefix_cache = false});
    ASSERT_NE(engine, nullptr);
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      expected.push_back(*ReadToEnd(**engine->Submit(LeafRequest(leaf))));
    }
    EXPECT_EQ(engine->stats().cached_prompt_tokens_total, 0);
    EXPECT_EQ(engine->stats().kv_cached_chunks, 0);
  }
  EXPECT_NE(expected[0], expected[1]);

  uint32_t seed = 1;
  for (const bool prefix_cache : {true, false}) {
    for (const auto mode : {AttentionModeOption::kTwoPhase, AttentionModeOption::kPaged}) {
      const auto engine = Start(*path, {.prefix_cache = prefix_cache, .mode = mode});
      ASSERT_NE(engine, nullptr);
      RunMix(*engine, expected, seed++, prefix_cache ? 100 : 40,
             std::string(prefix_cache ? "shared" : "not shared") +
                 (mode == AttentionModeOption::kPaged ? ", paged" : ", two_phase"));
      if (prefix_cache) {
        EXPECT_GT(engine->stats().cached_prompt_tokens_total, 10000);
      }
    }
  }
  {
    const auto engine = Start(*path, {.disturb = true});
    ASSERT_NE(engine, nullptr);
    RunMix(*engine, expected, seed++, 30, "evicted and preempted");
    EXPECT_GT(engine->stats().preemptions_total, 30);
    EXPECT_GT(engine->stats().kv_evicted_chunks_total, 200);
  }
}

INSTANTIATE_TEST_SUITE_P(SomeWeightTypes, Sharing,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kQ4_1),
                         [](const auto& info) {
                           return std::string(kernels::Traits(info.param).name);
                         });

}  // namespace
}  // namespace refrain::testing
