// Whole forward passes of a random model in bf16 as a GPU serves one by default: as they are
// called, recorded and replayed, and beside the reference's. On the emulated device, and on a GPU
// where there is one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv_storage.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/step_batch.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/worse.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

constexpr int32_t kChunkTokens = 64;
// Of a row of logits' length. Activations are rounded to bf16 in front of every product.
constexpr double kLimit = 0.02;

// Which pass, by which back end.
struct PassCase {
  std::string backend;
  std::string products;  // MakeCudaBackend's `attention`
  int head_dim = 0;
  // A hidden size that is no multiple of 8 is rounded by a kernel of its own, others by the one
  // that computes it.
  int hidden_size = 0;
  int32_t decoding = 0;  // sequences with a row each
  int32_t piece = 0;     // rows of one more, of which the last is sampled from

  // The emulated device takes a minute for what a GPU does in the blink of an eye.
  bool emulated() const { return backend == "cuda_emulated"; }
  int heads() const { return (emulated() ? 128 : 256) / head_dim; }
  int steps() const { return emulated() ? 4 : 7; }  // from the third on they are replayed
  int32_t slots() const { return decoding + (piece > 0 ? 1 : 0); }
  int32_t rows() const { return decoding + piece; }
  std::string name() const {
    return backend + "_" + (products.empty() ? "fastest" : products) + "_d" +
           std::to_string(head_dim) + "_rows" + std::to_string(rows());
  }
};

std::ostream& operator<<(std::ostream& out, const PassCase& c) { return out << c.name(); }

// Counts the passes whose operations are called, those that are recorded among them.
class WatchedBackend final : public testing::ForwardingBackend {
 public:
  WatchedBackend(std::unique_ptr<kernels::Backend> on, bool may_record)
      : ForwardingBackend(std::move(on)), may_record_(may_record) {}

  void RunStep(const kernels::StepInputs& inputs,
               const std::function<void()>& operations) override {
    kernels::StepInputs step = inputs;
    if (!may_record_) step.pass = nullptr;
    on().RunStep(step, [&] {
      ++called;
      operations();
    });
  }

  int called = 0;

 private:
  const bool may_record_;
};

// Sequences that share their first chunk and have another one of their own each.
class Sequences {
 public:
  explicit Sequences(int32_t count) : lengths_(static_cast<size_t>(count), kChunkTokens) {
    first_->generation = 1;
    first_->chunks = {{0, 0}};
    first_->slots = {{0, 0, kernels::kOpenEnd}};
    first_->runs = {{0, 1, 0, 1}};
    all_->generation = 2;
    all_->chunks = {{0, 0}};
    for (int32_t slot = 0; slot < count; ++slot) all_->slots.push_back({slot, 0, kChunkTokens});
    all_->runs = {{0, 1, 0, count}};
    for (int32_t slot = 0; slot < count; ++slot) {
      all_->chunks.push_back({slot + 1, 0});
      all_->slots.push_back({slot, kChunkTokens, kernels::kOpenEnd});
      all_->runs.push_back({slot + 1, slot + 2, count + slot, count + slot + 1});
    }
  }

  // What all of them begin with.
  StepBatch Shared() {
    StepBatch batch;
    batch.plan = first_;
    batch.slots.resize(lengths_.size());
    AddRows(0, 0, kChunkTokens, &batch);
    return batch;
  }
  // `rows_of(slot)` more of each; `wanted`: logits of the last of them.
  StepBatch More(const std::function<int32_t(int32_t)>& rows_of, bool wanted) {
    StepBatch batch;
    batch.plan = all_;
    batch.slots.resize(lengths_.size());
    for (size_t slot = 0; slot < lengths_.size(); ++slot) {
      const int32_t rows = rows_of(static_cast<int32_t>(slot));
      AddRows(static_cast<int32_t>(slot), lengths_[slot], rows, &batch);
      lengths_[slot] += rows;
      if (wanted) batch.logits.push_back({.row = static_cast<int32_t>(batch.tokens.size()) - 1});
    }
    return batch;
  }

 private:
  static void AddRows(int32_t slot, int32_t begin, int32_t rows, StepBatch* batch) {
    batch->slots[static_cast<size_t>(slot)] = {rows, static_cast<int32_t>(batch->tokens.size()), 0,
                                               begin + rows};
    for (int32_t key = begin; key < begin + rows; ++key) {
      batch->tokens.push_back((slot * 131 + key * 17 + key * key) % 300);
      batch->positions.push_back(key);
      batch->destinations.push_back({key < kChunkTokens ? 0 : slot + 1, key % kChunkTokens});
    }
  }

  const std::shared_ptr<AttentionPlanArrays> first_ = std::make_shared<AttentionPlanArrays>();
  const std::shared_ptr<AttentionPlanArrays> all_ = std::make_shared<AttentionPlanArrays>();
  std::vector<int32_t> lengths_;
};

struct Passes {
  std::vector<std::vector<float>> logits;  // of each step, [slots, vocab_size]
  int called = 0;                          // steps whose operations were called
};

class DevicePass : public ::testing::TestWithParam<PassCase> {
 protected:
  void SetUp() override {
    const PassCase& c = GetParam();
    testing::TinyModelOptions tiny{.matrix_dtype = kernels::DType::kBF16};
    tiny.config.hidden_size = c.hidden_size;
    tiny.config.num_heads = c.heads();
    tiny.config.num_kv_heads = (c.heads() + 1) / 2;
    tiny.config.head_dim = tiny.config.rope.dim = c.head_dim;
    tiny.config.ffn_size = 96;
    tiny.config.vocab_size = 300;
    const auto folder = testing::WriteTinyFolder(tiny, directory_.path() + "/model");
    ASSERT_TRUE(folder.ok()) << folder.status();
    auto source = WeightSource::Open(*folder);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }

  // The shared tokens, up to three more of each sequence, and the steps.
  Passes Run(std::unique_ptr<kernels::Backend> on, bool may_record) {
    const PassCase& c = GetParam();
    WatchedBackend backend(std::move(on), may_record);
    auto model = LlamaModel::Load(*source_, backend, {.max_rows = 3 * c.slots() + kChunkTokens});
    if (!model.ok()) throw std::runtime_error(model.status().ToString());
    const auto layout = KvLayoutFor((*model)->config(), backend.info(), kv_dtype_, kChunkTokens);
    const auto storage = *KvStorage::Create(backend.device(), *layout, c.slots() + 1);
    const kernels::KvPoolView kv = storage->View(nullptr);
    const auto forward = [&](const StepBatch& batch) {
      (*model)->Forward(batch, batch.tokens, kv);
    };
    Sequences sequences(c.slots());
    const StepBatch shared = sequences.Shared();
    const StepBatch begin = sequences.More([](int32_t slot) { return 1 + slot % 3; }, false);
    for (const StepBatch* batch : {&shared, &begin}) {
      EXPECT_EQ((*model)->ReserveFor(*batch, kv), absl::OkStatus());
    }
    forward(shared);
    forward(begin);
    backend.called = 0;
    Passes passes;
    const auto vocab = static_cast<size_t>((*model)->config().vocab_size);
    const size_t elements = static_cast<size_t>(c.slots()) * vocab;
    const kernels::DeviceBuffer logits =
        *backend.device().Allocate(elements * sizeof(float), false);
    for (int step = 0; step < c.steps(); ++step) {
      const StepBatch batch =
          sequences.More([&](int32_t slot) { return slot < c.decoding ? 1 : c.piece; }, true);
      forward(batch);
      std::vector<int32_t> rows;
      for (const LogitsRow& wanted : batch.logits) rows.push_back(wanted.row);
      (*model)->Logits(rows, kernels::F32View(reinterpret_cast<float*>(logits.data()), c.slots(),
                                              static_cast<int64_t>(vocab)));
      EXPECT_EQ(backend.Synchronize(), absl::OkStatus());
      std::vector<float>& read = passes.logits.emplace_back(elements);
      EXPECT_EQ(backend.device().CopyToHost(reinterpret_cast<std::byte*>(read.data()),
                                            logits.data(), elements * sizeof(float)),
                absl::OkStatus());
    }
    passes.called = backend.called;
    return passes;
  }
  Passes RunOnDevice(bool may_record) {
    auto backend = testing::MakeCudaBackend(GetParam().backend, GetParam().products);
    kv_dtype_ = backend->info().preferred_kv;
    return Run(std::move(backend), may_record);
  }
  // The greatest distance of a row of logits from what it should be, in parts of that one's length.
  double WorstRow(const std::vector<float>& got, const std::vector<float>& want) const {
    const auto vocab = static_cast<size_t>(source_->config().vocab_size);
    double worst = 0;
    for (size_t row = 0; row < want.size(); row += vocab) {
      double error = 0, length = 0;
      for (size_t i = row; i < row + vocab; ++i) {
        error += std::pow(double{got[i]} - want[i], 2);
        length += double{want[i]} * want[i];
      }
      worst = kernels::Worse(worst, std::sqrt(error / length));
    }
    return worst;
  }

  const testing::TemporaryDirectory directory_;
  std::unique_ptr<WeightSource> source_;
  kernels::DType kv_dtype_ = kernels::DType::kF16;
};

// A library is chosen by its times, which may come to another choice in the second engine.
TEST_P(DevicePass, ReplayedWithGrowingLengthsIsWhatItsOperationsAreAndTheReferences) {
  const Passes called = RunOnDevice(false);
  const Passes replayed = RunOnDevice(true);
  const Passes want = Run(std::make_unique<kernels::ReferenceBackend>(), false);
  EXPECT_EQ(called.called, GetParam().steps());
  EXPECT_EQ(replayed.called, 2);  // the first, and the recording
  for (int step = 0; step < GetParam().steps(); ++step) {
    SCOPED_TRACE(step);
    EXPECT_LT(WorstRow(called.logits[step], want.logits[step]), kLimit);
    EXPECT_LT(WorstRow(replayed.logits[step], want.logits[step]), kLimit);
    if (GetParam().products == "checked") continue;
    EXPECT_TRUE(std::ranges::equal(replayed.logits[step], called.logits[step]));
  }
  // They do depend on what came to be there.
  EXPECT_GT(WorstRow(want.logits[1], want.logits[0]), 10 * kLimit);
}

std::vector<PassCase> PassCases() {
  std::vector<PassCase> cases;
  for (const std::string& name : testing::CudaBackendNames()) {
    // As the daemon makes it; the emulated device has no library, and tries attention for long.
    const std::vector<std::string> products =
        name == "cuda" ? std::vector<std::string>{"own_products", "checked"}
                       : std::vector<std::string>{""};
    for (const std::string& by : products) {
      for (const auto& [head_dim, hidden_size] : {std::pair(64, 100), std::pair(128, 64)}) {
        cases.push_back({name, by, head_dim, hidden_size, 5, 0});
        cases.push_back({name, by, head_dim, hidden_size, 24, 8});
        cases.push_back({name, by, head_dim, hidden_size, 200, 0});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Bf16, DevicePass, ::testing::ValuesIn(PassCases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace refrain::engine
