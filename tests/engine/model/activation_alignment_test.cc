// Where a step's activations lie: attention kernels of a GPU read queries in vectors of 16 bytes,
// and one that is not aligned is an error of the device, which ends the engine.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
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

class WatchingBackend final : public testing::ForwardingBackend {
 public:
  WatchingBackend() : ForwardingBackend(*kernels::cpu::CpuBackend::Create({.threads = 1})) {}

  void ChunkAttention(const kernels::ChunkAttentionArgs& args) override {
    ++calls;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(args.q.data) % 16, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(args.out.data) % 16, 0u);
    EXPECT_EQ(args.q.stride % 4, 0);
    ForwardingBackend::ChunkAttention(args);
  }

  int calls = 0;
};

TEST(ActivationAlignment, HoldsForOddHiddenSizesAndStepBudgets) {
  testing::TinyModelOptions options;
  options.config.hidden_size = 255;
  testing::TemporaryDirectory directory;
  const auto path = testing::WriteTinyFolder(options, directory.path());
  ASSERT_TRUE(path.ok()) << path.status();
  auto source = WeightSource::Open(*path);
  ASSERT_TRUE(source.ok()) << source.status();
  WatchingBackend backend;
  auto model = LlamaModel::Load(**source, backend, {.max_rows = 7});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto layout = KvLayoutFor((*model)->config(), backend.info(), kernels::DType::kF32, 64);
  ASSERT_TRUE(layout.ok());
  const auto storage = *KvStorage::Create(backend.device(), *layout, 1);
  StepBatch batch;
  batch.tokens = {5};
  batch.positions = {0};
  batch.destinations = {{0, 0}};
  batch.slots = {{1, 0, 0, 1}};
  auto plan = std::make_shared<AttentionPlanArrays>();
  plan->generation = 1;
  plan->chunks = {{0, 0}};
  plan->slots = {{0, 0, kernels::kOpenEnd}};
  plan->runs = {{0, 1, 0, 1}};
  batch.plan = std::move(plan);
  batch.logits.push_back({.row = 0});
  const std::vector<int32_t> positions(64);
  (*model)->Forward(batch, batch.tokens, storage->View(positions.data()));
  EXPECT_EQ(backend.calls, (*model)->config().num_layers);
}

}  // namespace
}  // namespace refrain::engine
