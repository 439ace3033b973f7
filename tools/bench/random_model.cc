#include "tools/bench/random_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/reference/half_float.h"

namespace refrain::bench {

using engine::ModelConfig;
using engine::StepBatch;
using engine::TensorRole;
using kernels::DType;

namespace {

ModelConfig Shape(int layers, int hidden, int heads, int kv_heads, int ffn, int vocab) {
  ModelConfig config;
  config.architecture = "llama";
  config.num_layers = layers;
  config.hidden_size = hidden;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = hidden / heads;
  config.ffn_size = ffn;
  config.vocab_size = vocab;
  config.max_context_tokens = 16384;
  config.rms_eps = 1e-5;
  config.rope.dim = config.head_dim;
  return config;
}

StepTime Measure(const RandomModel::Work& work, int rounds, const RandomModel::Work& before) {
  work();  // warm
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    before();
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

void MustWork(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

}  // namespace

ModelConfig Shape7B() { return Shape(32, 4096, 32, 32, 11008, 32000); }
ModelConfig Shape8B() { return Shape(32, 4096, 32, 8, 14336, 32000); }
ModelConfig ShapeTiny() { return Shape(2, 64, 4, 2, 96, 128); }

RandomWeights::RandomWeights(const ModelConfig& config) : config_(config) {
  int64_t most = 0;
  for (int role = 0; role < engine::kNumTensorRoles; ++role) {
    const engine::TensorShape shape = ShapeOf(static_cast<TensorRole>(role), config);
    most = std::max(most, shape.rows * shape.cols);
  }
  // 64 Ki random values, repeated from shifting places.
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<uint16_t> some(1 << 16);
  for (uint16_t& bits : some) bits = kernels::F32ToBf16(normal(random));
  values_.resize(most);
  for (int64_t done = 0, turn = 0; done < most; ++turn) {
    const size_t skip = turn * 4099 % (some.size() / 2);
    const int64_t count = std::min<int64_t>(some.size() - skip, most - done);
    std::copy_n(some.begin() + static_cast<int64_t>(skip), count, values_.begin() + done);
    done += count;
  }
}

bool RandomWeights::Has(TensorRole role, int) const {
  return role != TensorRole::kRopeFreqs && Belongs(role, config_);
}

absl::StatusOr<engine::WeightView> RandomWeights::Get(TensorRole role, int layer) const {
  if (!Has(role, layer)) return absl::NotFoundError("no such tensor among random weights");
  const engine::TensorShape shape = ShapeOf(role, config_);
  return engine::WeightView{DType::kBF16, shape.rows, shape.cols,
                            reinterpret_cast<const std::byte*>(values_.data()),
                            static_cast<size_t>(shape.rows * shape.cols) * sizeof(uint16_t)};
}

std::string RandomWeights::NameOf(TensorRole role, int layer) const {
  return "random " + std::to_string(static_cast<int>(role)) + " of layer " + std::to_string(layer);
}

absl::StatusOr<engine::TokenizerSource> RandomWeights::ReadTokenizer() const {
  return absl::NotFoundError("random weights have no tokenizer");
}

absl::StatusOr<std::unique_ptr<RandomModel>> RandomModel::Load(
    std::unique_ptr<kernels::Backend> backend, const ModelConfig& config, int32_t max_rows,
    int32_t max_context, int32_t num_chunks) {
  auto random = std::make_unique<RandomModel>();
  random->backend_ = std::move(backend);
  const RandomWeights weights(config);
  auto model = engine::LlamaModel::Load(weights, *random->backend_,
                                        {.compute = kernels::ComputeDType::kBF16,
                                         .max_context_tokens = max_context,
                                         .max_rows = max_rows});
  if (!model.ok()) return model.status();
  random->model_ = *std::move(model);
  auto layout = engine::KvLayoutFor(config, random->backend_->info(), DType::kBF16, kChunkTokens);
  if (!layout.ok()) return layout.status();
  kernels::Device& device = random->backend_->device();
  auto storage = engine::KvStorage::Create(device, *layout, num_chunks);
  if (!storage.ok()) return storage.status();
  random->storage_ = *std::move(storage);
  random->positions_.resize(size_t{1} * num_chunks * kChunkTokens);
  auto logits = device.Allocate(size_t{256} * config.vocab_size * sizeof(float), false);
  if (!logits.ok()) return logits.status();
  random->logits_ = *std::move(logits);
  return random;
}

StepTime RandomModel::Time(const StepBatch& batch, const std::vector<int32_t>& wanted, int rounds,
                           const Work& before) {
  const kernels::KvPoolView kv = storage_->View(positions_.data());
  return Measure(
      [&] {
        model_->Forward(batch, batch.tokens, kv);
        model_->Logits(wanted, kernels::F32View(reinterpret_cast<float*>(logits_.data()),
                                                static_cast<int64_t>(wanted.size()),
                                                model_->config().vocab_size));
        MustWork(backend_->Synchronize());
      },
      rounds, before);
}

StepBatch RandomModel::DecodeStep(int slots, int shared) {
  auto plan = std::make_shared<engine::AttentionPlanArrays>();
  plan->generation = ++plans_made_;
  StepBatch batch;
  const int32_t shared_chunks = shared / kChunkTokens;
  for (int32_t i = 0; i < shared_chunks; ++i) plan->chunks.push_back({i, i * kChunkTokens});
  if (shared_chunks > 0) {
    for (int slot = 0; slot < slots; ++slot) plan->slots.push_back({slot, 0, shared});
    plan->runs.push_back({0, shared_chunks, 0, slots});
  }
  for (int slot = 0; slot < slots; ++slot) {
    const auto chunk = static_cast<int32_t>(plan->chunks.size());
    const auto entry = static_cast<int32_t>(plan->slots.size());
    plan->chunks.push_back({shared_chunks + slot, 0});
    plan->slots.push_back({slot, shared, kernels::kOpenEnd});
    plan->runs.push_back({chunk, chunk + 1, entry, entry + 1});
    batch.slots.push_back({1, slot, 0, shared + 1});
    batch.tokens.push_back(slot % model_->config().vocab_size);
    batch.positions.push_back(shared);
    batch.destinations.push_back({shared_chunks + slot, 0});
    batch.logits.push_back({.row = slot});
  }
  batch.plan = std::move(plan);
  return batch;
}

StepTime RandomModel::TimeDecode(int slots, int shared, int rounds) {
  std::vector<int32_t> wanted(slots);
  std::iota(wanted.begin(), wanted.end(), 0);
  return Time(DecodeStep(slots, shared), wanted, rounds);
}

absl::StatusOr<StepTime> RandomModel::TimeDecodeAttention(int slots, int shared, int rounds) {
  const ModelConfig& config = model_->config();
  const size_t floats = size_t{1} * slots * config.q_size();
  auto memory = backend_->device().Allocate(2 * floats * sizeof(float), false);
  if (!memory.ok()) return memory.status();
  auto* const data = reinterpret_cast<float*>(memory->data());
  const StepBatch batch = DecodeStep(slots, shared);
  kernels::ChunkAttentionArgs args = {
      .num_heads = config.num_heads,
      .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
      .kv = storage_->View(positions_.data()),
      .plan = batch.plan->view(),
      .steps = batch.slots,
      .q = kernels::F32View(data, slots, config.q_size()),
      .row_positions = batch.positions.data(),
      .out = kernels::F32View(data + floats, slots, config.q_size())};
  const kernels::StepInputs inputs = {.ids = batch.tokens,
                                      .positions = batch.positions,
                                      .destinations = batch.destinations,
                                      .steps = batch.slots,
                                      .plan = batch.plan->view(),
                                      .plan_generation = batch.plan->generation};
  return Measure(
      [&] {
        backend_->BeginStep(inputs);  // its plan is made once, as a decoding step finds it
        for (args.layer = 0; args.layer < config.num_layers; ++args.layer) {
          backend_->ChunkAttention(args);
        }
        MustWork(backend_->Synchronize());
      },
      rounds, [] {});
}

StepTime RandomModel::TimePrefill(int cached, int rows, int rounds, const Work& before) {
  auto plan = std::make_shared<engine::AttentionPlanArrays>();
  plan->generation = ++plans_made_;
  StepBatch batch;
  const int32_t chunks = (cached + rows + kChunkTokens - 1) / kChunkTokens;
  for (int32_t i = 0; i < chunks; ++i) plan->chunks.push_back({i, i * kChunkTokens});
  plan->slots.push_back({0, 0, kernels::kOpenEnd});
  plan->runs.push_back({0, chunks, 0, 1});
  batch.plan = std::move(plan);
  batch.slots.push_back({rows, 0, 0, cached + rows});
  for (int32_t i = cached; i < cached + rows; ++i) {
    batch.tokens.push_back(i % model_->config().vocab_size);
    batch.positions.push_back(i);
    batch.destinations.push_back({i / kChunkTokens, i % kChunkTokens});
  }
  batch.logits.push_back({.row = rows - 1});
  return Time(batch, {rows - 1}, rounds, before);
}

absl::StatusOr<double> RandomModel::ProductFlopsPerSecond(int rows, int size, int rounds) {
  // As of a model: a card that multiplies equal numbers, or zeros, takes less power and clocks
  // higher.
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(size_t{1} * size * size);
  for (uint16_t& value : values) value = kernels::F32ToBf16(normal(random));
  const kernels::WeightSlice slice = {
      DType::kBF16, size, size, reinterpret_cast<const std::byte*>(values.data()), {}};
  auto weight = backend_->PackLinear({&slice, 1}, {.compute = kernels::ComputeDType::kBF16});
  if (!weight.ok()) return weight.status();
  const size_t floats = size_t{1} * rows * size;
  auto memory = backend_->device().Allocate(2 * floats * sizeof(float), false);
  if (!memory.ok()) return memory.status();
  auto* const data = reinterpret_cast<float*>(memory->data());
  std::vector<float> x(floats);
  for (float& value : x) value = normal(random);
  const absl::Status copied = backend_->device().CopyFromHost(
      memory->data(), reinterpret_cast<const std::byte*>(x.data()), floats * sizeof(float));
  if (!copied.ok()) return copied;
  constexpr int kProducts = 4;  // what starting one costs is not to count
  const StepTime time = Measure(
      [&] {
        for (int i = 0; i < kProducts; ++i) {
          backend_->Linear({weight->get(), kernels::F32View(data, rows, size),
                            kernels::F32View(data + floats, rows, size)});
        }
        MustWork(backend_->Synchronize());
      },
      rounds, [] {});
  return 2.0 * kProducts * static_cast<double>(floats) * size / time.median_s;
}

double RandomModel::PrefillFlops(int cached, int rows) const {
  const ModelConfig& c = model_->config();
  const double qkv = double{1} * c.hidden_size * (c.q_size() + 2 * c.kv_size());
  const double others = c.hidden_size * (c.q_size() + 3.0 * c.ffn_size);
  const double pairs = rows * (cached + (rows + 1) / 2.0);
  // Behind the attention of the last layer one row is computed: next to nothing.
  return c.num_layers * (2.0 * qkv * rows + 4.0 * pairs * c.q_size()) +
         (c.num_layers - 1) * 2.0 * others * rows + 2.0 * c.hidden_size * c.vocab_size;
}

double RandomModel::KvBytes(int tokens) const {
  const int chunks = (tokens + kChunkTokens - 1) / kChunkTokens;
  return chunks * static_cast<double>(storage_->layout().chunk_bytes());
}

}  // namespace refrain::bench
