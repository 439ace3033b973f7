// Which rows of a step have their logits computed, and that the others get the same tokens.

#include "engine/llama_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/device_chunk_mover.h"
#include "engine/kv_storage.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/sampler.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

constexpr int64_t kVocab = 384;  // no other product of the model is as wide

enum class Search { kWorks, kLeavesEverySecondRow, kIsNotThere };

class WatchingBackend final : public testing::ForwardingBackend {
 public:
  explicit WatchingBackend(Search search)
      : ForwardingBackend(*kernels::cpu::CpuBackend::Create({.threads = 2})), search_(search) {}

  void Linear(const kernels::LinearArgs& args) override {
    if (args.out.cols == kVocab) rows_of_logits += args.out.rows;
    ForwardingBackend::Linear(args);
  }
  void ChunkAttention(const kernels::ChunkAttentionArgs& args) override {
    if (std::exchange(lacks_memory, false)) throw std::bad_alloc();
    ForwardingBackend::ChunkAttention(args);
  }
  void LinearArgMax(const kernels::LinearArgMaxArgs& args) override {
    // What a back end does that has no search of its own.
    // NOLINTNEXTLINE(bugprone-parent-virtual-call)
    if (search_ == Search::kIsNotThere) return Backend::LinearArgMax(args);
    ForwardingBackend::LinearArgMax(args);
    for (size_t i = 0; i < args.out.size(); ++i) {
      EXPECT_NE(args.out[i], kernels::LinearArgMaxArgs::kUndecided);
      if (search_ == Search::kLeavesEverySecondRow && i % 2 == 1) {
        args.out[i] = kernels::LinearArgMaxArgs::kUndecided;
      }
    }
  }

  int64_t rows_of_logits = 0;
  bool lacks_memory = false;  // once

 private:
  const Search search_;
};

// A sequence of 40 tokens in one step, with a token chosen, or log-probabilities wanted, behind
// every one of them: by turns greedily, greedily with log-probabilities, at a temperature, greedily
// with a penalty, without a sampler, and greedily with bans on what would be chosen.
class LlamaRunnerTest : public ::testing::Test {
 protected:
  static constexpr int32_t kRows = 48;
  static constexpr int kKinds = 6;
  static constexpr int kGreedyKinds = 2;

  void SetUp() override {
    testing::TinyModelOptions options;
    options.matrix_dtype = kernels::DType::kQ4_1;
    path_ = *testing::WriteTinyGguf(options, directory_.path());
  }

  struct Outcome {
    std::vector<SampledToken> rows;
    int64_t rows_of_logits = 0;
    bool copy_was_made_before = false;  // of the chunk that the step wrote
  };

  // With `lacks_memory` it fails once before it runs.
  Outcome RunStep(Search search, bool lacks_memory = false) {
    const auto source = *WeightSource::Open(path_);
    WatchingBackend backend(search);
    const auto model = *LlamaModel::Load(*source, backend, {.max_rows = kRows});
    EXPECT_EQ(model->config().vocab_size, kVocab);
    const auto layout = *KvLayoutFor(model->config(), backend.info(), kernels::DType::kF32, 64);
    const auto storage = *KvStorage::Create(backend.device(), layout, 2);
    std::byte* const copy = storage->View(nullptr).base + layout.chunk_bytes();
    std::memset(copy, 0xff, layout.chunk_bytes());
    DeviceChunkMover mover(storage.get(), &backend);
    EXPECT_EQ(mover.CopyChunk(kvcache::ChunkId{0}, kvcache::ChunkId{1}), absl::OkStatus());
    std::vector<int32_t> positions(64);
    for (int32_t i = 0; i < 64; ++i) positions[i] = i;

    StepBatch batch;
    std::vector<std::unique_ptr<SamplerState>> samplers;
    for (int32_t i = 0; i < kRows; ++i) {
      batch.tokens.push_back(i * 37 % static_cast<int32_t>(kVocab));
      batch.positions.push_back(i);
      batch.destinations.push_back({0, i});
      LogitsRow wanted{.row = i};
      SamplingParams params;
      params.temperature = i % kKinds == 2 ? 1.0 : 0.0;
      if (i % kKinds == 3) params.presence_penalty = 0.5;
      if (i % kKinds == 1 || i % kKinds == 4) wanted.top_logprobs = 3;
      if (i % kKinds != 4) {
        const bool bans = i % kKinds == 5;
        samplers.push_back(std::make_unique<SamplerState>(
            params, /*seed=*/i, std::vector<TokenId>(), /*min_tokens=*/bans ? 1 : 0,
            bans ? banned_ : std::vector<TokenId>()));
        wanted.sampler = samplers.back().get();
      }
      batch.logits.push_back(wanted);
      batch.logits_slots.push_back(0);
    }
    auto plan = std::make_shared<AttentionPlanArrays>();
    plan->generation = 1;
    plan->chunks.push_back({0, 0});
    plan->slots.push_back({0, 0, kernels::kOpenEnd});
    plan->runs.push_back({0, 1, 0, 1});
    batch.plan = plan;
    batch.slots.push_back({kRows, 0, 0, kRows});

    const auto runner =
        *LlamaRunner::Create(backend, *model, storage->View(positions.data()), &mover);
    if (lacks_memory) {
      backend.lacks_memory = true;
      const absl::Status failed = runner->Collect(runner->Launch(batch)).status();
      EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted) << failed;
      EXPECT_FALSE(backend.lacks_memory);
    }
    auto result = runner->Collect(runner->Launch(batch));
    EXPECT_TRUE(result.ok()) << result.status();
    return {result.ok() ? result->rows : std::vector<SampledToken>(), backend.rows_of_logits,
            std::all_of(copy, copy + layout.chunk_bytes(),
                        [](std::byte byte) { return byte == std::byte{0}; })};
  }

  std::vector<TokenId> banned_ = {TokenId{1}};
  testing::TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(LlamaRunnerTest, ComputesLogitsOnlyOfRowsThatNeedThem) {
  constexpr int32_t kOthers = kRows * (kKinds - kGreedyKinds) / kKinds;
  EXPECT_EQ(RunStep(Search::kWorks).rows_of_logits, kOthers);
  EXPECT_EQ(RunStep(Search::kIsNotThere).rows_of_logits, kRows);
  EXPECT_EQ(RunStep(Search::kLeavesEverySecondRow).rows_of_logits,
            kOthers + kRows * kGreedyKinds / kKinds / 2);
  // So many that looking them all up would take longer than what is saved.
  banned_.resize(65, TokenId{1});
  EXPECT_EQ(RunStep(Search::kWorks).rows_of_logits, kOthers + kRows / kKinds);
}

TEST_F(LlamaRunnerTest, TokensAreThoseOfAllLogits) {
  // What the rows with bans would choose.
  std::vector<TokenId> favourites;
  for (const SampledToken& row : RunStep(Search::kIsNotThere).rows) favourites.push_back(row.token);
  banned_.clear();
  for (int32_t i = 5; i < kRows; i += kKinds) banned_.push_back(favourites[i]);
  const Outcome all = RunStep(Search::kIsNotThere);
  ASSERT_EQ(all.rows.size(), static_cast<size_t>(kRows));
  for (const Search search : {Search::kWorks, Search::kLeavesEverySecondRow}) {
    const Outcome some = RunStep(search);
    ASSERT_EQ(some.rows.size(), all.rows.size());
    for (int32_t i = 0; i < kRows; ++i) {
      EXPECT_EQ(some.rows[i].token, all.rows[i].token) << i;
      EXPECT_EQ(some.rows[i].token != favourites[i], i % kKinds == 5) << i;
      const bool wants_logprobs = i % kKinds == 1 || i % kKinds == 4;
      ASSERT_EQ(some.rows[i].logprob.has_value(), wants_logprobs) << i;
      if (!wants_logprobs) continue;
      EXPECT_EQ(some.rows[i].logprob->token, some.rows[i].token);
      EXPECT_EQ(some.rows[i].logprob->logprob, all.rows[i].logprob->logprob);
      EXPECT_EQ(some.rows[i].top.size(), 3u);
    }
  }
}

// What is copied for a sequence is what the chunk held before the step.
TEST_F(LlamaRunnerTest, CopiesOfChunksThatWaitAreMadeBeforeTheStep) {
  EXPECT_TRUE(RunStep(Search::kWorks).copy_was_made_before);
}

// As with ulimit -v: the loop then runs it as smaller ones, or ends its requests.
TEST_F(LlamaRunnerTest, AStepThatIsRefusedMemoryFailsAndMayRunAgain) {
  const Outcome again = RunStep(Search::kWorks, /*lacks_memory=*/true);
  const Outcome want = RunStep(Search::kWorks);
  ASSERT_EQ(again.rows.size(), want.rows.size());
  for (size_t i = 0; i < want.rows.size(); ++i) {
    EXPECT_EQ(again.rows[i].token, want.rows[i].token) << i;
  }
}

}  // namespace
}  // namespace refrain::engine
