#include "tests/support/model_harness.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "engine/backend_factory.h"

namespace refrain::testing {

using engine::StepBatch;

absl::StatusOr<std::unique_ptr<ModelHarness>> ModelHarness::Load(const std::string& path,
                                                                 const HarnessOptions& options) {
  auto backend = engine::MakeBackend(options.backend);
  if (!backend.ok()) return backend.status();
  return LoadOn(*std::move(backend), path, options);
}

absl::StatusOr<std::unique_ptr<ModelHarness>> ModelHarness::LoadOn(
    std::unique_ptr<kernels::Backend> backend, const std::string& path,
    const HarnessOptions& options) {
  auto harness = std::make_unique<ModelHarness>();
  harness->options_ = options;
  auto source = engine::WeightSource::Open(path);
  if (!source.ok()) return source.status();
  harness->source_ = *std::move(source);
  harness->backend_ = std::move(backend);
  auto compute = engine::ParseComputeDType(options.backend.compute_dtype);
  if (!compute.ok()) return compute.status();
  const engine::ModelConfig& config = harness->source_->config();
  auto model = engine::LlamaModel::Load(
      *harness->source_, *harness->backend_,
      {.compute = *compute,
       .max_context_tokens = std::min(options.max_context_tokens, config.max_context_tokens),
       .max_rows = options.step_tokens,
       .reproducible = options.reproducible});
  if (!model.ok()) return model.status();
  harness->model_ = *std::move(model);
  auto kv_dtype = engine::ParseKvDType(options.kv_dtype, *harness->backend_, config);
  if (!kv_dtype.ok()) return kv_dtype.status();
  constexpr int kChunkTokens = 64;
  const int32_t chunks = harness->model_->max_context_tokens() / kChunkTokens + 1;
  auto layout = engine::KvLayoutFor(config, harness->backend_->info(), *kv_dtype, kChunkTokens);
  if (!layout.ok()) return layout.status();
  auto storage = engine::KvStorage::Create(harness->backend_->device(), *layout, chunks);
  if (!storage.ok()) return storage.status();
  harness->storage_ = *std::move(storage);
  harness->positions_.resize(chunks * kChunkTokens);
  auto logits = harness->backend_->device().Allocate(
      static_cast<size_t>(options.step_tokens) * config.vocab_size * sizeof(float), false);
  if (!logits.ok()) return logits.status();
  harness->logits_ = *std::move(logits);
  return harness;
}

void ModelHarness::Start(std::span<const int32_t> ids, int32_t first_wanted,
                         const OnLogits& on_logits) {
  length_ = 0;
  std::iota(positions_.begin(), positions_.end(), 0);
  Append(ids, first_wanted, on_logits);
}

void ModelHarness::StartAt(std::span<const int32_t> ids, std::span<const int32_t> positions,
                           int32_t first_wanted, const OnLogits& on_logits) {
  length_ = 0;
  std::copy(positions.begin(), positions.end(), positions_.begin());
  Append(ids, first_wanted, on_logits);
}

void ModelHarness::Append(std::span<const int32_t> ids, int32_t first_wanted,
                          const OnLogits& on_logits) {
  while (!ids.empty()) {
    const size_t count = std::min<size_t>(ids.size(), options_.step_tokens);
    Step(ids.first(count), first_wanted, on_logits);
    ids = ids.subspan(count);
  }
}

void ModelHarness::Step(std::span<const int32_t> ids, int32_t first_wanted,
                        const OnLogits& on_logits) {
  const kernels::KvPoolView kv = storage_->View(positions_.data());
  const auto rows = static_cast<int32_t>(ids.size());
  StepBatch batch;
  auto plan = std::make_shared<engine::AttentionPlanArrays>();
  plan->generation = ++plans_;
  const int32_t chunks = (length_ + rows + kv.chunk_tokens - 1) / kv.chunk_tokens;
  for (int32_t i = 0; i < chunks; ++i) plan->chunks.push_back({i, i * kv.chunk_tokens});
  plan->slots.push_back({0, 0, kernels::kOpenEnd});
  plan->runs.push_back({0, chunks, 0, 1});
  batch.plan = plan;
  batch.slots.push_back({rows, 0, 0, length_ + rows});
  std::vector<int32_t> wanted;
  for (int32_t i = 0; i < rows; ++i) {
    const int32_t index = length_ + i;
    batch.tokens.push_back(ids[i]);
    batch.positions.push_back(positions_[index]);
    batch.destinations.push_back({index / kv.chunk_tokens, index % kv.chunk_tokens});
    if (index < first_wanted) continue;
    wanted.push_back(i);
    batch.logits.push_back({.row = i});
  }
  model_->Forward(batch, batch.tokens, kv);
  const int64_t vocab = model_->config().vocab_size;
  if (!wanted.empty()) {
    model_->Logits(wanted, kernels::F32View(reinterpret_cast<float*>(logits_.data()),
                                            static_cast<int64_t>(wanted.size()), vocab));
    absl::Status status = backend_->Synchronize();
    read_logits_.resize(wanted.size() * vocab);
    if (status.ok()) {
      status = backend_->device().CopyToHost(reinterpret_cast<std::byte*>(read_logits_.data()),
                                             logits_.data(), read_logits_.size() * sizeof(float));
    }
    if (!status.ok()) throw std::runtime_error(status.ToString());
    for (size_t i = 0; i < wanted.size(); ++i) {
      on_logits(length_ + wanted[i], {read_logits_.data() + i * vocab, static_cast<size_t>(vocab)});
    }
  }
  length_ += rows;
}

std::string SmolLm2Path() {
  namespace fs = std::filesystem;
  std::vector<fs::path> caches;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != '\0') {
    caches.emplace_back(xdg);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr) {
    caches.push_back(fs::path(home) / ".cache");
  }
  for (const fs::path& cache : caches) {
    const fs::path path = cache / "refrain/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (fs::exists(path)) return path.string();
  }
  return "";
}

}  // namespace refrain::testing
