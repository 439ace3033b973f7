#include "engine/model/llama.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/finite_weights.h"

namespace refrain::engine {

using kernels::DType;
using kernels::F32View;
using kernels::LinearWeight;
using kernels::TensorView;
using kernels::WeightSlice;

namespace {

// Rows that cost about as much as reading a layer's weights once more does.
constexpr int64_t kFewRows = 16;

// What is never coarse (kernels::LinearArgs::coarse_rows): that takes half of the error away and
// next to no time (docs/results/accuracy.md).
// Rows at the first positions: everything behind attends to them, most of all to the very first,
// and where a prompt is this short a choice hangs on few rows.
constexpr int32_t kExactPositions = 64;
// Rows that something is chosen from, in the last layers: no layer behind evens their error out.
constexpr int kExactLayers = 2;

// Output row i of a half-split head comes from this row of an adjacent-pair source; elements that
// are not rotated stay where they are.
std::vector<int32_t> HalfSplitOrder(int num_heads, int head_dim, int rope_dim) {
  std::vector<int32_t> order(static_cast<size_t>(num_heads) * head_dim);
  for (int head = 0; head < num_heads; ++head) {
    for (int i = 0; i < head_dim; ++i) {
      const int half = rope_dim / 2;
      int from = i;
      if (i < half) {
        from = 2 * i;
      } else if (i < rope_dim) {
        from = 2 * (i - half) + 1;
      }
      order[head * head_dim + i] = head * head_dim + from;
    }
  }
  return order;
}

float WidenToF32(DType dtype, const std::byte* data, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + i * 2, 2);
  if (dtype == DType::kBF16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  assert(dtype == DType::kF16);
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

}  // namespace

// Packs one model's tensors; lives during Load only.
class LlamaModel::Loader {
 public:
  // `vectors` has room for all norms and biases, in the order in which they are read.
  Loader(const WeightSource& source, kernels::Backend& backend, const LlamaOptions& options,
         std::byte* vectors)
      : source_(source),
        backend_(backend),
        compute_(options.compute),
        second_copy_(options.second_copy),
        next_vector_(vectors) {
    const ModelConfig& c = source.config();
    if (c.rope.source_pairs == RopePairs::kAdjacent) {
      q_order_ = HalfSplitOrder(c.num_heads, c.head_dim, c.rope.dim);
      k_order_ = HalfSplitOrder(c.num_kv_heads, c.head_dim, c.rope.dim);
    }
  }

  // One weight of the roles' rows, one above the other.
  absl::Status Pack(std::initializer_list<TensorRole> roles, int layer,
                    std::unique_ptr<LinearWeight>* to, kernels::PackOptions options = {}) {
    std::vector<WeightSlice> slices;
    for (const TensorRole role : roles) {
      absl::StatusOr<WeightView> view = GetSound(role, layer);
      if (!view.ok()) return view.status();
      WeightSlice slice{view->dtype, view->rows, view->cols, view->data, {}};
      if (role == TensorRole::kAttnQ) slice.row_order = q_order_;
      if (role == TensorRole::kAttnK) slice.row_order = k_order_;
      slices.push_back(slice);
    }
    options.compute = compute_;
    // The output head loses most by 8 bits and wins least: it is computed for one row of a prompt,
    // and where only the most probable token is wanted (options.argmax) with 8 bits and no loss.
    const bool head =
        *roles.begin() == TensorRole::kTokenEmbedding || *roles.begin() == TensorRole::kOutput;
    options.second_copy = second_copy_ && !head;
    if (options.compute == kernels::ComputeDType::kInt8 && head) {
      options.compute = kernels::ComputeDType::kQuantized;
    }
    absl::StatusOr<std::unique_ptr<LinearWeight>> weight = backend_.PackLinear(slices, options);
    if (!weight.ok()) return weight.status();
    *to = *std::move(weight);
    return absl::OkStatus();
  }

  // The roles' vectors in the back end's memory, one behind the other.
  template <typename Float>
  absl::Status ReadVectors(std::initializer_list<TensorRole> roles, int layer, Float** to) {
    *to = reinterpret_cast<float*>(next_vector_);
    for (const TensorRole role : roles) {
      const absl::StatusOr<std::vector<float>> values = ReadVector(role, layer);
      if (!values.ok()) return values.status();
      const size_t bytes = values->size() * sizeof(float);
      absl::Status status = backend_.device().CopyFromHost(
          next_vector_, reinterpret_cast<const std::byte*>(values->data()), bytes);
      if (!status.ok()) return status;
      next_vector_ += bytes;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> ReadVector(TensorRole role, int layer) {
    absl::StatusOr<WeightView> view = GetSound(role, layer);
    if (!view.ok()) return view.status();
    std::vector<float> values(view->cols);
    for (int64_t i = 0; i < view->cols; ++i) values[i] = WidenToF32(view->dtype, view->data, i);
    return values;
  }

 private:
  absl::StatusOr<WeightView> GetSound(TensorRole role, int layer) const {
    absl::StatusOr<WeightView> view = source_.Get(role, layer);
    if (!view.ok()) return view;
    if (const std::optional<NotFinite> damage = FindNotFinite(*view)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", source_.NameOf(role, layer), " is damaged: row ", damage->row,
                       " has an infinity or NaN at column ", damage->column));
    }
    if (!MayBeZero(role) && HoldsOnlyZeros(*view)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", source_.NameOf(role, layer),
                       " holds nothing but zeros: the file may be downloaded in part only"));
    }
    return view;
  }

  const WeightSource& source_;
  kernels::Backend& backend_;
  const kernels::ComputeDType compute_;
  const bool second_copy_;
  std::byte* next_vector_;
  std::vector<int32_t> q_order_, k_order_;
};

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Load(const WeightSource& source,
                                                             kernels::Backend& backend,
                                                             const LlamaOptions& options) {
  std::unique_ptr<LlamaModel> model(new LlamaModel(backend, source.config(), options));
  if (absl::Status status = model->LoadFrom(source); !status.ok()) return status;
  return model;
}

absl::Status LlamaModel::LoadFrom(const WeightSource& source) {
  absl::StatusOr<kernels::DeviceBuffer> vectors =
      backend_.device().Allocate(NumVectorElements() * sizeof(float), false);
  if (!vectors.ok()) return vectors.status();
  vectors_ = *std::move(vectors);
  Loader loader(source, backend_, options_, vectors_.data());

  absl::StatusOr<std::vector<float>> freq_factors = std::vector<float>();
  if (source.Has(TensorRole::kRopeFreqs)) {
    freq_factors = loader.ReadVector(TensorRole::kRopeFreqs, 0);
    if (!freq_factors.ok()) return freq_factors.status();
  }
  max_context_tokens_ =
      options_.max_context_tokens > 0 ? options_.max_context_tokens : config_.max_context_tokens;
  const int32_t positions = options_.max_positions > 0
                                ? std::min(options_.max_positions, max_context_tokens_)
                                : max_context_tokens_;

  absl::StatusOr<std::unique_ptr<DeviceRopeTable>> rope =
      DeviceRopeTable::Create(backend_.device(), config_.rope, *std::move(freq_factors), positions);
  if (!rope.ok()) return rope.status();
  rope_ = *std::move(rope);

  absl::Status status = AllocateActivations(options_.max_rows);
  if (status.ok()) {
    status = loader.Pack({TensorRole::kTokenEmbedding}, 0, &embedding_,
                         {.embedding = true, .argmax = config_.tied_embeddings});
  }
  if (status.ok() && !config_.tied_embeddings) {
    status = loader.Pack({TensorRole::kOutput}, 0, &output_, {.argmax = true});
  }
  if (status.ok()) status = loader.ReadVectors({TensorRole::kOutputNorm}, 0, &output_norm_);
  layers_.resize(config_.num_layers);
  for (int i = 0; i < config_.num_layers && status.ok(); ++i) status = LoadLayer(loader, i);
  return status;
}

absl::Status LlamaModel::LoadLayer(Loader& loader, int index) {
  using Role = TensorRole;
  Layer& layer = layers_[index];
  absl::Status status = loader.ReadVectors({Role::kAttnNorm}, index, &layer.attn_norm);
  if (status.ok()) status = loader.ReadVectors({Role::kFfnNorm}, index, &layer.ffn_norm);
  if (status.ok() && config_.qkv_bias) {
    status = loader.ReadVectors({Role::kAttnQBias, Role::kAttnKBias, Role::kAttnVBias}, index,
                                &layer.qkv_bias);
  }
  if (status.ok() && config_.qk_norm) {
    status = loader.ReadVectors({Role::kAttnQNorm}, index, &layer.q_norm);
    if (status.ok()) status = loader.ReadVectors({Role::kAttnKNorm}, index, &layer.k_norm);
  }
  if (status.ok()) {
    status = loader.Pack({Role::kAttnQ, Role::kAttnK, Role::kAttnV}, index, &layer.qkv);
  }
  if (status.ok()) status = loader.Pack({Role::kAttnOutput}, index, &layer.attn_output);
  if (status.ok()) status = loader.Pack({Role::kFfnGate}, index, &layer.gate);
  if (status.ok()) status = loader.Pack({Role::kFfnUp}, index, &layer.up);
  if (status.ok()) status = loader.Pack({Role::kFfnDown}, index, &layer.down);
  return status;
}

size_t LlamaModel::NumVectorElements() const {
  size_t of_layer = 2 * config_.hidden_size;
  if (config_.qkv_bias) of_layer += config_.q_size() + 2 * config_.kv_size();
  if (config_.qk_norm) of_layer += 2 * config_.head_dim;
  return config_.num_layers * of_layer + config_.hidden_size;
}

size_t LlamaModel::resident_bytes() const {
  size_t bytes = vectors_.bytes() + embedding_->resident_bytes() +
                 (output_ != nullptr ? output_->resident_bytes() : 0);
  for (const Layer& layer : layers_) {
    for (const auto* weight : {&layer.qkv, &layer.attn_output, &layer.gate, &layer.up, &layer.down})
      bytes += (*weight)->resident_bytes();
  }
  return bytes;
}

size_t LlamaModel::second_copy_bytes() const {
  size_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const auto* weight : {&layer.qkv, &layer.attn_output, &layer.gate, &layer.up, &layer.down})
      bytes += (*weight)->second_copy_bytes();
  }
  return bytes;
}

absl::Status LlamaModel::AllocateActivations(int64_t rows) {
  const int64_t qkv = config_.q_size() + 2 * config_.kv_size();
  // Each begins where a kernel may read whole vectors, be the sizes odd.
  const auto floats = [rows](int64_t cols) {
    constexpr int64_t kAlignment = 64 / sizeof(float);
    return (rows * cols + kAlignment - 1) / kAlignment * kAlignment;
  };
  const int64_t all = 2 * floats(config_.hidden_size) + floats(qkv) + floats(config_.q_size()) +
                      floats(config_.ffn_size);
  absl::StatusOr<kernels::DeviceBuffer> buffer =
      backend_.device().Allocate(all * sizeof(float), true);
  if (!buffer.ok()) {
    return absl::Status(
        buffer.status().code(),
        absl::StrCat("activations of ", rows, " tokens a step: ", buffer.status().message(),
                     "; engine.step_token_budget says how many there are"));
  }
  activations_ = *std::move(buffer);
  auto* data = reinterpret_cast<float*>(activations_.data());
  const auto take = [&](int64_t cols) {
    return F32View(std::exchange(data, data + floats(cols)), rows, cols);
  };
  hidden_ = take(config_.hidden_size);
  normed_ = take(config_.hidden_size);
  qkv_ = take(qkv);
  attended_ = take(config_.q_size());
  ffn_ = take(config_.ffn_size);
  return absl::OkStatus();
}

absl::Status LlamaModel::ReserveFor(const StepBatch& like, const kernels::KvPoolView& kv) {
  return backend_.ReserveFor({.rows = static_cast<int64_t>(like.tokens.size()),
                              .ffn_size = config_.ffn_size,
                              .attention = AttentionOf(like, kv)});
}

void LlamaModel::Forward(const StepBatch& batch, std::span<const int32_t> tokens,
                         const kernels::KvPoolView& kv, const int32_t* sampled,
                         const std::stop_token& abandoned) {
  const auto rows = static_cast<int64_t>(tokens.size());
  assert(rows <= hidden_.rows);
  const std::vector<RowRange> every = {{0, rows}};
  const std::vector<RowRange> wanted = WantedRows(batch);
  const bool all_rows = wanted == every;
  const std::vector<kernels::SlotStep> wanted_slots =
      all_rows ? std::vector<kernels::SlotStep>() : WantedSlots(batch);
  MarkCoarseRows(batch);
  rope_->Fill(batch.positions);
  const kernels::StepInputs inputs = {.ids = tokens,
                                      .positions = batch.positions,
                                      .destinations = batch.destinations,
                                      .steps = batch.slots,
                                      .plan = batch.plan->view(),
                                      .plan_generation = batch.plan->generation,
                                      .sampled = sampled,
                                      .pass = all_rows ? this : nullptr};
  backend_.RunStep(inputs, [&] {
    backend_.Embed({embedding_.get(), tokens, hidden_.Rows(rows), sampled});
    for (int i = 0; i < config_.num_layers && !abandoned.stop_requested(); ++i) {
      const bool is_last = i + 1 == config_.num_layers;
      const std::span<const uint8_t> coarse = CoarseRows(i);
      AppendKv(layers_[i], i, batch, kv, coarse);
      if (is_last && wanted.empty()) break;
      Attend(i, batch, kv, is_last ? wanted_slots : std::span<const kernels::SlotStep>());
      for (const RowRange& range : is_last ? wanted : every) {
        FinishRows(layers_[i], range, coarse);
      }
    }
  });
}

std::vector<LlamaModel::RowRange> LlamaModel::WantedRows(const StepBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  if (static_cast<int64_t>(batch.logits.size()) + kFewRows > rows) return {{0, rows}};
  std::vector<RowRange> ranges;
  for (const LogitsRow& wanted : batch.logits) {
    if (ranges.empty() || wanted.row > ranges.back().end + kFewRows) {
      ranges.push_back({wanted.row, wanted.row + 1});
    } else {
      ranges.back().end = std::max<int64_t>(ranges.back().end, wanted.row + 1);
    }
  }
  return ranges;
}

std::vector<kernels::SlotStep> LlamaModel::WantedSlots(const StepBatch& batch) {
  std::vector<kernels::SlotStep> slots = batch.slots;
  for (kernels::SlotStep& slot : slots) {
    const int32_t end = slot.row_begin + slot.num_rows;
    const auto first = std::ranges::lower_bound(batch.logits, slot.row_begin, {}, &LogitsRow::row);
    const int32_t begin = first == batch.logits.end() ? end : std::min(first->row, end);
    slot.row_begin = begin;
    slot.num_rows = end - begin;
  }
  return slots;
}

void LlamaModel::MarkCoarseRows(const StepBatch& batch) {
  if (options_.compute != kernels::ComputeDType::kAuto || options_.reproducible) return;
  coarse_rows_.resize(batch.positions.size());
  for (size_t row = 0; row < coarse_rows_.size(); ++row) {
    coarse_rows_[row] = batch.positions[row] >= kExactPositions ? 1 : 0;
  }
  last_coarse_rows_ = coarse_rows_;
  for (const LogitsRow& wanted : batch.logits) last_coarse_rows_[wanted.row] = 0;
}

std::span<const uint8_t> LlamaModel::CoarseRows(int layer) const {
  return layer + kExactLayers < config_.num_layers ? coarse_rows_ : last_coarse_rows_;
}

void LlamaModel::AppendKv(const Layer& layer, int index, const StepBatch& batch,
                          const kernels::KvPoolView& kv, std::span<const uint8_t> coarse_rows) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const TensorView normed = normed_.Rows(rows);
  const TensorView qkv = qkv_.Rows(rows);
  backend_.RmsNorm({config_.rms_eps,
                    hidden_.Rows(rows),
                    layer.attn_norm,
                    {},
                    normed,
                    1,
                    /*reader=*/layer.qkv.get()});
  backend_.Linear({layer.qkv.get(), normed, qkv, false, options_.reproducible, coarse_rows});
  BiasAndNormalizeHeads(layer, qkv);
  kernels::RopeTable table = rope_->view();
  if (!config_.rotates(index)) table.rope_dim = 0;
  backend_.RopeAppend(
      {index, config_.num_heads, qkv, batch.positions, table, batch.destinations, kv});
}

void LlamaModel::BiasAndNormalizeHeads(const Layer& layer, const TensorView& qkv) {
  if (layer.qkv_bias != nullptr) {
    backend_.Add({qkv, {layer.qkv_bias, DType::kF32, qkv.rows, qkv.cols, /*stride=*/0}});
  }
  if (layer.q_norm == nullptr) return;
  const auto normalize = [&](const TensorView& heads, const float* weight, int count) {
    backend_.RmsNorm({config_.rms_eps, heads, weight, {}, heads, count});
  };
  normalize(qkv.Cols(0, config_.q_size()), layer.q_norm, config_.num_heads);
  normalize(qkv.Cols(config_.q_size(), config_.kv_size()), layer.k_norm, config_.num_kv_heads);
}

void LlamaModel::Attend(int index, const StepBatch& batch, const kernels::KvPoolView& kv,
                        std::span<const kernels::SlotStep> wanted) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  kernels::ChunkAttentionArgs args = AttentionOf(batch, kv);
  args.layer = index;
  args.wanted = wanted;
  args.q = qkv_.Rows(rows).Cols(0, config_.q_size());
  args.row_positions = batch.positions.data();
  args.out = attended_.Rows(rows);
  backend_.ChunkAttention(args);
}

kernels::ChunkAttentionArgs LlamaModel::AttentionOf(const StepBatch& batch,
                                                    const kernels::KvPoolView& kv) const {
  return {.num_heads = config_.num_heads,
          .window_tokens = config_.sliding_window_tokens,
          .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
          .mode = options_.attention_mode,
          .reproducible = options_.reproducible,
          .kv = kv,
          .plan = batch.plan->view(),
          .steps = batch.slots};
}

void LlamaModel::FinishRows(const Layer& layer, const RowRange& range,
                            std::span<const uint8_t> coarse_rows) {
  const auto rows_of = [&](const TensorView& view) {
    return view.RowRange(range.begin, range.end - range.begin);
  };
  const TensorView hidden = rows_of(hidden_);
  const TensorView normed = rows_of(normed_);
  const TensorView ffn = rows_of(ffn_);
  const bool reproducible = options_.reproducible;
  const std::span<const uint8_t> coarse =
      coarse_rows.empty() ? coarse_rows : coarse_rows.subspan(range.begin, hidden.rows);

  backend_.Linear(
      {layer.attn_output.get(), rows_of(attended_), hidden, true, reproducible, coarse});
  backend_.RmsNorm({config_.rms_eps,
                    hidden,
                    layer.ffn_norm,
                    {},
                    normed,
                    1,
                    /*reader=*/layer.gate.get()});
  backend_.GateUp({layer.gate.get(), layer.up.get(), normed, ffn, reproducible, coarse,
                   /*reader=*/layer.down.get()});
  backend_.Linear({layer.down.get(), ffn, hidden, true, reproducible, coarse});
}

TensorView LlamaModel::HeadInputs(std::span<const int32_t> rows) {
  const TensorView normed = normed_.Rows(static_cast<int64_t>(rows.size()));
  backend_.RmsNorm({config_.rms_eps, hidden_, output_norm_, rows, normed, 1, /*reader=*/head()});
  return normed;
}

const LinearWeight* LlamaModel::head() const {
  return config_.tied_embeddings ? embedding_.get() : output_.get();
}

void LlamaModel::Logits(std::span<const int32_t> rows, TensorView out) {
  backend_.Linear({head(), HeadInputs(rows), out, false, options_.reproducible});
}

void LlamaModel::MostProbable(std::span<const int32_t> rows, std::span<const BannedToken> banned,
                              std::span<int32_t> tokens) {
  backend_.LinearArgMax({head(), HeadInputs(rows), tokens, banned});
}

}  // namespace refrain::engine
