#ifndef REFRAIN_ENGINE_MODEL_LLAMA_H_
#define REFRAIN_ENGINE_MODEL_LLAMA_H_

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/device_rope_table.h"
#include "engine/model/model_config.h"
#include "engine/model/weight_source.h"
#include "engine/step_batch.h"
#include "kernels/backend.h"

namespace refrain::engine {

struct LlamaOptions {
  kernels::ComputeDType compute = kernels::ComputeDType::kAuto;
  int32_t max_context_tokens = 0;  // 0 = the model's
  int32_t max_positions = 0;       // that any token can have, where memory for KV says so; 0 = all
  int32_t max_rows = 512;          // of one Forward
  bool reproducible = false;
  bool second_copy = false;  // kernels::PackOptions::second_copy of the layers' weights
  kernels::AttentionMode attention_mode = kernels::AttentionMode::kTwoPhase;
};

// A decoder of the Llama family on one back end: packed weights and the forward pass.
//
// It knows nothing of requests, sampling or who shares which chunk: a batch says which tokens stand
// where. The engine thread alone calls it (through the model runner). Load fails with the source's
// or the back end's status; Forward cannot fail on a host (see Backend).
class LlamaModel {
 public:
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Load(const WeightSource& source,
                                                          kernels::Backend& backend,
                                                          const LlamaOptions& options);

  const ModelConfig& config() const { return config_; }
  int32_t max_context_tokens() const { return max_context_tokens_; }
  kernels::AttentionMode attention_mode() const { return options_.attention_mode; }
  size_t resident_bytes() const;
  size_t second_copy_bytes() const;  // of these
  size_t activation_bytes() const { return activations_.bytes(); }

  // Lets the back end take the memory that Forward needs for a batch like this one: so many tokens
  // and slots, and such a plan. RESOURCE_EXHAUSTED where there is none.
  absl::Status ReserveFor(const StepBatch& like, const kernels::KvPoolView& kv);

  // Computes the batch and appends K and V of all its rows to the chunks; keeps the last hidden
  // states of the rows whose logits the batch wants until the next call: behind the attention of
  // the last layer others are not computed. At most options.max_rows rows. `tokens` and `sampled`
  // as EmbedArgs. Once `abandoned` is requested it returns after the layer that is being computed:
  // nothing of the batch is of use then.
  void Forward(const StepBatch& batch, std::span<const int32_t> tokens,
               const kernels::KvPoolView& kv, const int32_t* sampled = nullptr,
               const std::stop_token& abandoned = {});

  // Logits of rows of the last Forward that its batch wanted: out [rows.size(), vocab_size], f32.
  void Logits(std::span<const int32_t> rows, kernels::TensorView out);
  // The token with the greatest of those logits, the lowest of equal ones, for each row, `banned`
  // ones left out (ascending by row, an index into `rows`); or kUndecided where only Logits can
  // tell. [rows.size()]
  static constexpr int32_t kUndecided = kernels::LinearArgMaxArgs::kUndecided;
  using BannedToken = kernels::LinearArgMaxArgs::Excluded;
  void MostProbable(std::span<const int32_t> rows, std::span<const BannedToken> banned,
                    std::span<int32_t> tokens);

 private:
  struct RowRange {
    int64_t begin = 0, end = 0;
    friend bool operator==(const RowRange&, const RowRange&) = default;
  };
  struct Layer {
    const float* attn_norm = nullptr;                    // [hidden_size]
    const float* ffn_norm = nullptr;                     // [hidden_size]
    float* qkv_bias = nullptr;                           // [q_size + 2 * kv_size], or null
    const float* q_norm = nullptr;                       // [head_dim], or null
    const float* k_norm = nullptr;                       // [head_dim], or null
    std::unique_ptr<kernels::LinearWeight> qkv;          // [q_size + 2 * kv_size, hidden_size]
    std::unique_ptr<kernels::LinearWeight> attn_output;  // [hidden_size, q_size]
    std::unique_ptr<kernels::LinearWeight> gate;         // [ffn_size, hidden_size]
    std::unique_ptr<kernels::LinearWeight> up;           // [ffn_size, hidden_size]
    std::unique_ptr<kernels::LinearWeight> down;         // [hidden_size, ffn_size]
  };

  LlamaModel(kernels::Backend& backend, ModelConfig config, const LlamaOptions& options)
      : backend_(backend), config_(std::move(config)), options_(options) {}

  class Loader;

  absl::Status LoadFrom(const WeightSource& source);
  absl::Status LoadLayer(Loader& loader, int index);
  size_t NumVectorElements() const;
  // Which rows of the batch products may round, for CoarseRows.
  void MarkCoarseRows(const StepBatch& batch);
  // Of a layer, as kernels::LinearArgs::coarse_rows; empty where all have the same arithmetic.
  std::span<const uint8_t> CoarseRows(int layer) const;
  // What every layer's attention has, without rows.
  kernels::ChunkAttentionArgs AttentionOf(const StepBatch& batch,
                                          const kernels::KvPoolView& kv) const;
  // A layer, in three parts: all rows' queries, and keys and values into the chunks; attention, of
  // the `wanted` rows at least (kernels::ChunkAttentionArgs); what follows, of some rows.
  void AppendKv(const Layer& layer, int index, const StepBatch& batch,
                const kernels::KvPoolView& kv, std::span<const uint8_t> coarse_rows);
  void Attend(int index, const StepBatch& batch, const kernels::KvPoolView& kv,
              std::span<const kernels::SlotStep> wanted);
  void FinishRows(const Layer& layer, const RowRange& range, std::span<const uint8_t> coarse_rows);
  // What stands between a layer's product and RoPE, where anything does.
  void BiasAndNormalizeHeads(const Layer& layer, const kernels::TensorView& qkv);
  kernels::TensorView HeadInputs(std::span<const int32_t> rows);
  const kernels::LinearWeight* head() const;
  absl::Status AllocateActivations(int64_t rows);
  // Where the last layer goes on behind its keys and values: all rows, or ranges that hold those
  // that the batch wants logits of.
  static std::vector<RowRange> WantedRows(const StepBatch& batch);
  // Each slot's rows from the first on that the batch wants logits of.
  static std::vector<kernels::SlotStep> WantedSlots(const StepBatch& batch);

  kernels::Backend& backend_;
  ModelConfig config_;
  LlamaOptions options_;
  int32_t max_context_tokens_ = 0;
  std::unique_ptr<DeviceRopeTable> rope_;
  std::unique_ptr<kernels::LinearWeight> embedding_;  // [vocab_size, hidden_size]
  std::unique_ptr<kernels::LinearWeight> output_;     // null when tied
  const float* output_norm_ = nullptr;                // [hidden_size]
  kernels::DeviceBuffer vectors_;                     // every norm and bias, one after the other
  std::vector<Layer> layers_;

  // [rows], or empty; of the last layers, and of those before them.
  std::vector<uint8_t> last_coarse_rows_, coarse_rows_;
  // Activations of one Forward, [max_rows, ...].
  kernels::DeviceBuffer activations_;
  kernels::TensorView hidden_;    // [rows, hidden_size] the residual stream
  kernels::TensorView normed_;    // [rows, hidden_size]
  kernels::TensorView qkv_;       // [rows, q_size + 2 * kv_size]
  kernels::TensorView attended_;  // [rows, q_size]
  kernels::TensorView ffn_;       // [rows, ffn_size]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_LLAMA_H_
