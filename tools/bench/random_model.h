#ifndef REFRAIN_TOOLS_BENCH_RANDOM_MODEL_H_
#define REFRAIN_TOOLS_BENCH_RANDOM_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kv_storage.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/step_batch.h"
#include "kernels/backend.h"

namespace refrain::bench {

// Weights of any shape that no file holds: random bf16 values, the same memory behind every tensor.
// What comes out of such a model is noise; how long it takes is what it would be.
class RandomWeights : public engine::WeightSource {
 public:
  explicit RandomWeights(const engine::ModelConfig& config);

  const engine::ModelConfig& config() const override { return config_; }
  const std::string& description() const override { return description_; }
  absl::StatusOr<engine::WeightView> Get(engine::TensorRole role, int layer) const override;
  bool Has(engine::TensorRole role, int layer) const override;
  std::string NameOf(engine::TensorRole role, int layer) const override;
  absl::StatusOr<engine::TokenizerSource> ReadTokenizer() const override;
  absl::StatusOr<engine::SamplingDefaults> ReadSamplingDefaults() const override {
    return engine::SamplingDefaults();
  }

 private:
  engine::ModelConfig config_;
  std::string description_ = "random weights";
  std::vector<uint16_t> values_;
};

// Llama-2-7B, Llama-3.1-8B (with a vocabulary of 32,000) and one small enough for any machine.
engine::ModelConfig Shape7B();
engine::ModelConfig Shape8B();
engine::ModelConfig ShapeTiny();

struct StepTime {
  double median_s = 0, least_s = 0, most_s = 0;
};

// A model of random weights on one back end with a pool of chunks, run step by step without
// scheduler or text. Not thread-safe.
class RandomModel {
 public:
  using Work = std::function<void()>;

  // Products and cache in bf16. The pool holds `num_chunks` chunks of 64 tokens, all zero; a step
  // has up to `max_rows` rows.
  static absl::StatusOr<std::unique_ptr<RandomModel>> Load(
      std::unique_ptr<kernels::Backend> backend, const engine::ModelConfig& config,
      int32_t max_rows, int32_t max_context, int32_t num_chunks);

  // One decode step of `slots` sequences that share their first `shared` tokens (a multiple of 64)
  // and have nothing else, logits included.
  StepTime TimeDecode(int slots, int shared, int rounds);
  // The attention of all layers of such a step, and nothing else of it.
  absl::StatusOr<StepTime> TimeDecodeAttention(int slots, int shared, int rounds);
  // `rows` new tokens of one sequence behind `cached` ones, logits of the last included. `before`
  // is called before each round, outside of its time.
  StepTime TimePrefill(
      int cached, int rows, int rounds, const Work& before = [] {});
  // The bf16 product of `rows` rows with a square weight of `size`: operations per second.
  absl::StatusOr<double> ProductFlopsPerSecond(int rows, int size, int rounds);

  // Multiply-adds times two of a prefill.
  double PrefillFlops(int cached, int rows) const;
  // K and V of the tokens.
  double KvBytes(int tokens) const;
  const engine::KvStorage& storage() const { return *storage_; }
  // What computes matrix products.
  const std::string& products() const { return backend_->info().products; }

  static constexpr int kChunkTokens = 64;

 private:
  engine::StepBatch DecodeStep(int slots, int shared);
  StepTime Time(
      const engine::StepBatch& batch, const std::vector<int32_t>& wanted, int rounds,
      const Work& before = [] {});

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<engine::LlamaModel> model_;
  std::unique_ptr<engine::KvStorage> storage_;
  std::vector<int32_t> positions_;
  uint64_t plans_made_ = 0;
  kernels::DeviceBuffer logits_;
};

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_RANDOM_MODEL_H_
