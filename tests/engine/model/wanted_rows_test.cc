// Rows whose logits nobody wants end in the last layer; the others are the same to the bit. Which
// rows may be coarse. How they attend.

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv_storage.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/step_batch.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

constexpr int kLayers = 3;
constexpr int32_t kChunkTokens = 64;
constexpr int32_t kSequences = 3;
constexpr int32_t kRowsOfEach = 50;
constexpr int32_t kRows = kSequences * kRowsOfEach;

// Counts the rows that are multiplied and those that attend, and keeps which of them were coarse
// and how they attended.
class CountingBackend final : public testing::ForwardingBackend {
 public:
  CountingBackend() : ForwardingBackend(*kernels::cpu::CpuBackend::Create({.threads = 2})) {}

  int64_t TakeRows() { return std::exchange(rows_, 0); }
  int64_t TakeAttended() { return std::exchange(attended_, 0); }
  // Of every product, in order.
  std::vector<std::vector<uint8_t>> TakeCoarse() { return std::exchange(coarse_, {}); }
  std::set<kernels::AttentionMode> TakeModes() { return std::exchange(modes_, {}); }

  void Linear(const kernels::LinearArgs& args) override {
    rows_ += args.x.rows;
    coarse_.emplace_back(args.coarse_rows.begin(), args.coarse_rows.end());
    ForwardingBackend::Linear(args);
  }
  void GateUp(const kernels::GateUpArgs& args) override {
    rows_ += args.x.rows;
    coarse_.emplace_back(args.coarse_rows.begin(), args.coarse_rows.end());
    ForwardingBackend::GateUp(args);
  }
  void ChunkAttention(const kernels::ChunkAttentionArgs& args) override {
    for (const kernels::SlotStep& slot : args.wanted.empty() ? args.steps : args.wanted) {
      attended_ += slot.num_rows;
    }
    modes_.insert(args.mode);
    ForwardingBackend::ChunkAttention(args);
  }

 private:
  int64_t rows_ = 0;
  int64_t attended_ = 0;
  std::vector<std::vector<uint8_t>> coarse_;
  std::set<kernels::AttentionMode> modes_;
};

class WantedRows : public ::testing::TestWithParam<kernels::DType> {
 protected:
  void SetUp() override {
    testing::TinyModelOptions tiny{.matrix_dtype = GetParam()};
    tiny.config.num_layers = kLayers;
    const auto path = testing::WriteTinyGguf(tiny, directory_.path());
    ASSERT_TRUE(path.ok()) << path.status();
    auto source = WeightSource::Open(*path);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    ASSERT_NO_FATAL_FAILURE(Load({.max_rows = kRows, .reproducible = true}));
    const auto layout =
        KvLayoutFor(model_->config(), backend_.info(), kernels::DType::kF32, kChunkTokens);
    ASSERT_TRUE(layout.ok());
    storage_ = *KvStorage::Create(backend_.device(), *layout, kSequences);
    for (int i = 0; i < kSequences * kChunkTokens; ++i) positions_.push_back(i % kChunkTokens);
  }

  void Load(const LlamaOptions& options) {
    auto model = LlamaModel::Load(*source_, backend_, options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  // Three prompts side by side; logits of `wanted`, row after row.
  std::vector<float> Logits(const std::vector<int32_t>& wanted) {
    StepBatch batch;
    auto plan = std::make_shared<AttentionPlanArrays>();
    plan->generation = ++plans_;
    for (int32_t i = 0; i < kSequences; ++i) {
      plan->chunks.push_back({i, 0});
      plan->slots.push_back({i, 0, kernels::kOpenEnd});
      plan->runs.push_back({i, i + 1, i, i + 1});
      batch.slots.push_back({kRowsOfEach, i * kRowsOfEach, 0, kRowsOfEach});
      for (int32_t j = 0; j < kRowsOfEach; ++j) {
        batch.tokens.push_back((i * 131 + j * 17) % 384);
        batch.positions.push_back(first_position_ + j);
        batch.destinations.push_back({i, j});
      }
    }
    batch.plan = std::move(plan);
    for (const int32_t row : wanted) batch.logits.push_back({.row = row});
    const auto vocab = static_cast<size_t>(model_->config().vocab_size);
    std::vector<float> logits(wanted.size() * vocab);
    backend_.TakeRows();
    backend_.TakeAttended();
    backend_.TakeCoarse();
    model_->Forward(batch, batch.tokens, storage_->View(positions_.data()));
    forward_rows_ = backend_.TakeRows();
    attended_rows_ = backend_.TakeAttended();
    if (!wanted.empty()) {
      model_->Logits(wanted, kernels::F32View(logits.data(), static_cast<int64_t>(wanted.size()),
                                              static_cast<int64_t>(vocab)));
    }
    return logits;
  }

  testing::TemporaryDirectory directory_;
  CountingBackend backend_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<LlamaModel> model_;
  int32_t first_position_ = 0;  // of each prompt
  std::unique_ptr<KvStorage> storage_;
  std::vector<int32_t> positions_;
  uint64_t plans_ = 0;
  int64_t forward_rows_ = 0;
  int64_t attended_rows_ = 0;
};

TEST_P(WantedRows, AttendAsTheOptionsSay) {
  for (const auto mode : {kernels::AttentionMode::kTwoPhase, kernels::AttentionMode::kPaged}) {
    Load({.max_rows = kRows, .attention_mode = mode});
    Logits({0});
    EXPECT_EQ(backend_.TakeModes(), std::set{mode});
  }
}

TEST_P(WantedRows, AreTheSameWithoutTheOthers) {
  std::vector<int32_t> every(kRows);
  std::iota(every.begin(), every.end(), 0);
  const std::vector<float> all = Logits(every);
  // Four products a layer.
  EXPECT_EQ(forward_rows_, kLayers * 4 * kRows);
  EXPECT_EQ(attended_rows_, kLayers * kRows);
  const auto vocab = static_cast<std::ptrdiff_t>(model_->config().vocab_size);
  struct Case {
    std::vector<int32_t> rows;
    int64_t finished, attended;  // of the last layer
  };
  const Case kCases[] = {{{}, 0, 0},
                         {{0}, 1, 50},
                         {{kRows - 1}, 1, 1},
                         {{49, 99, 149}, 3, 3},
                         // What is near goes along, and prompts attend from the first on.
                         {{0, 10, 99, 100, 149}, 11 + 2 + 1, 50 + 1 + 50},
                         {{3, 60, 61, 62, 149}, 1 + 3 + 1, 47 + 40 + 1}};
  for (const Case& one : kCases) {
    const std::vector<float> got = Logits(one.rows);
    EXPECT_EQ(forward_rows_, (kLayers - 1) * 4 * kRows + kRows + 3 * one.finished);
    EXPECT_EQ(attended_rows_, (kLayers - 1) * kRows + one.attended);
    for (size_t i = 0; i < one.rows.size(); ++i) {
      const auto from = got.begin() + static_cast<std::ptrdiff_t>(i) * vocab;
      EXPECT_TRUE(std::equal(from, from + vocab, all.begin() + one.rows[i] * vocab))
          << "row " << one.rows[i];
    }
  }
}

// With the default arithmetic alone: those behind the first 64 positions, and in the last two
// layers only those of them that nothing is chosen from.
TEST_P(WantedRows, OthersAreCoarse) {
  const std::vector<int32_t> wanted = {0, 49, 99, 100, 149};
  const auto coarse = [&](const LlamaOptions& options, int32_t first_position) {
    first_position_ = first_position;
    Load(options);
    Logits(wanted);
    return backend_.TakeCoarse();
  };
  using kernels::ComputeDType;
  const std::vector<std::vector<uint8_t>> kNone((kLayers - 1) * 4 + 1 + 4 * 3 +
                                                1);  // four ranges, and the head
  EXPECT_EQ(coarse({.max_rows = kRows, .reproducible = true}, 64), kNone);
  EXPECT_EQ(coarse({.compute = ComputeDType::kQuantized, .max_rows = kRows}, 64), kNone);
  EXPECT_EQ(coarse({.compute = ComputeDType::kInt8, .max_rows = kRows}, 64), kNone);

  for (const int32_t first_position : {0, 20, 64}) {
    std::vector<uint8_t> want(kRows);
    for (int32_t row = 0; row < kRows; ++row) {
      want[row] = first_position + row % kRowsOfEach >= 64 ? 1 : 0;
    }
    const auto got = coarse({.max_rows = kRows}, first_position);
    ASSERT_EQ(got.size(), kNone.size());
    size_t product = 0;
    for (; product < (kLayers - 2) * 4; ++product) EXPECT_EQ(got[product], want) << product;
    for (const int32_t row : wanted) want[row] = 0;
    for (; product < (kLayers - 1) * 4 + 1; ++product) EXPECT_EQ(got[product], want) << product;
    // Rows 0, 49, 99 with 100, and 149: none of them is coarse.
    for (; product < got.size(); ++product) {
      EXPECT_EQ(got[product], std::vector<uint8_t>(got[product].size())) << product;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, WantedRows,
                         ::testing::Values(kernels::DType::kF32, kernels::DType::kBF16,
                                           kernels::DType::kQ4_1, kernels::DType::kQ8_0));

}  // namespace
}  // namespace refrain::engine
