// Which weights meet activations of 8 bits under backend.compute_dtype = int8.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using kernels::ComputeDType;

struct Packed {
  int64_t rows;  // of all slices
  ComputeDType compute;
};

class WatchingBackend final : public testing::ForwardingBackend {
 public:
  WatchingBackend() : ForwardingBackend(*kernels::cpu::CpuBackend::Create({.threads = 1})) {}

  absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> PackLinear(
      std::span<const kernels::WeightSlice> slices, const kernels::PackOptions& options) override {
    Packed one{0, options.compute};
    for (const kernels::WeightSlice& slice : slices) one.rows += slice.rows;
    packed.push_back(one);
    return ForwardingBackend::PackLinear(slices, options);
  }

  std::vector<Packed> packed;
};

TEST(Int8Weights, AreAllButTheOutputHead) {
  testing::TinyModelOptions options;
  options.config.ffn_size = 768;  // unlike the vocabulary
  testing::TemporaryDirectory directory;
  const auto path = testing::WriteTinyGguf(options, directory.path());
  ASSERT_TRUE(path.ok()) << path.status();
  auto source = WeightSource::Open(*path);
  ASSERT_TRUE(source.ok()) << source.status();
  WatchingBackend backend;
  auto model = LlamaModel::Load(**source, backend, {.compute = ComputeDType::kInt8, .max_rows = 7});
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelConfig& config = (*model)->config();
  int int8 = 0, fixed = 0;
  for (const Packed& one : backend.packed) {
    const bool head = one.rows == config.vocab_size;
    EXPECT_EQ(one.compute, head ? ComputeDType::kQuantized : ComputeDType::kInt8) << one.rows;
    ++(one.compute == ComputeDType::kInt8 ? int8 : fixed);
  }
  EXPECT_EQ(int8, 5 * config.num_layers);
  EXPECT_EQ(fixed, config.tied_embeddings ? 1 : 2);
}

}  // namespace
}  // namespace refrain::engine
