#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend_factory.h"
#include "engine/device_chunk_mover.h"
#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "engine/kv_size.h"
#include "engine/kv_storage.h"
#include "engine/llama_runner.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/text/chat_template.h"
#include "engine/text/create_tokenizer.h"

namespace refrain::engine {
namespace {

// What the engine's parts point into. Destroyed in reverse order.
struct Foundation {
  std::string warning;  // of the back end or of its choice, for the log
  std::unique_ptr<kernels::Backend> backend;
  int32_t most_kv_chunks = 0;  // the model has positions for so many
  std::unique_ptr<LlamaModel> model;
  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<DeviceChunkMover> mover;
};

template <typename T>
absl::Status MoveTo(T& to, absl::StatusOr<T> from) {
  if (!from.ok()) return from.status();
  to = *std::move(from);
  return absl::OkStatus();
}

std::string TokenText(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id.has_value() ? std::string(tokenizer.TokenBytes(*id)) : std::string();
}

absl::Status LoadText(const WeightSource& source, EngineParts& parts) {
  absl::StatusOr<TokenizerSource> read = source.ReadTokenizer();
  if (!read.ok()) return read.status();
  absl::Status status =
      MoveTo(parts.tokenizer, read->sentencepiece_model.empty()
                                  ? CreateTokenizer(read->spec)
                                  : CreateSentencePieceTokenizer(read->sentencepiece_model));
  if (!status.ok()) return status;
  const Tokenizer& tokenizer = *parts.tokenizer;
  if (static_cast<int64_t>(tokenizer.vocab_size()) > source.config().vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ", tokenizer.vocab_size(),
                                                   " tokens, more than the model's vocab_size ",
                                                   source.config().vocab_size));
  }
  if (read->spec.chat_template.empty()) return absl::OkStatus();
  return MoveTo(parts.chat_template, ChatTemplate::Create(read->spec.chat_template,
                                                          TokenText(tokenizer, tokenizer.bos()),
                                                          TokenText(tokenizer, tokenizer.eos())));
}

struct KvSize {
  kvcache::KvLayout layout;
  int32_t num_chunks;
};

// What fits into the memory that is free now, or that the configuration names.
absl::StatusOr<KvSize> SizeCache(const EngineOptions& options, const ModelConfig& config,
                                 kernels::Backend& backend, int32_t most_chunks) {
  absl::StatusOr<kernels::DType> dtype = ParseKvDType(options.kv_cache.dtype, backend);
  if (!dtype.ok()) return dtype.status();
  absl::StatusOr<kvcache::KvLayout> layout =
      KvLayoutFor(config, backend.info(), *dtype, options.kv_cache.chunk_tokens);
  if (!layout.ok()) return layout.status();
  absl::StatusOr<int32_t> chunks =
      KvChunksFor({.memory_bytes = options.kv_cache.memory_bytes,
                   .available_bytes = static_cast<int64_t>(backend.device().AvailableBytes()),
                   .chunk_bytes = static_cast<int64_t>(layout->chunk_bytes()),
                   .chunk_tokens = options.kv_cache.chunk_tokens,
                   .context_tokens = options.max_context_tokens > 0 ? options.max_context_tokens
                                                                    : config.max_context_tokens,
                   .max_sequences = options.max_sequences,
                   .most_chunks = most_chunks});
  if (!chunks.ok()) return chunks.status();
  return KvSize{*std::move(layout), *chunks};
}

absl::Status LoadModel(const EngineOptions& options, const WeightSource& source,
                       Foundation& foundation) {
  absl::StatusOr<kernels::ComputeDType> compute = ParseComputeDType(options.backend.compute_dtype);
  if (!compute.ok()) return compute.status();
  const ModelConfig& config = source.config();
  if (options.max_context_tokens > config.max_context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.max_context_tokens is ", options.max_context_tokens,
                     "; the model was made for at most ", config.max_context_tokens));
  }
  absl::StatusOr<ChosenBackend> chosen = ChooseBackend(options.backend);
  if (!chosen.ok()) return chosen.status();
  foundation.backend = std::move(chosen->backend);
  foundation.warning = foundation.backend->info().warning;
  if (!chosen->note.empty()) {
    absl::StrAppend(&foundation.warning, foundation.warning.empty() ? "" : "; ", chosen->note);
  }
  // Weights take their part later: this is the most it will be.
  absl::StatusOr<KvSize> most =
      SizeCache(options, config, *foundation.backend, std::numeric_limits<int32_t>::max());
  if (!most.ok()) return most.status();
  foundation.most_kv_chunks = most->num_chunks;
  const bool paged = options.attention_mode == AttentionModeOption::kPaged;
  return MoveTo(foundation.model,
                LlamaModel::Load(source, *foundation.backend,
                                 {.compute = *compute,
                                  .max_context_tokens = options.max_context_tokens,
                                  .max_positions = most->num_chunks * options.kv_cache.chunk_tokens,
                                  .max_rows = options.step_token_budget,
                                  .reproducible = options.reproducible,
                                  .attention_mode = paged ? kernels::AttentionMode::kPaged
                                                          : kernels::AttentionMode::kTwoPhase}));
}

absl::Status MakeCache(const EngineOptions& options, Foundation& foundation, EngineParts& parts) {
  const LlamaModel& model = *foundation.model;
  kernels::Device& device = foundation.backend->device();
  absl::StatusOr<KvSize> size =
      SizeCache(options, model.config(), *foundation.backend, foundation.most_kv_chunks);
  if (!size.ok()) return size.status();
  absl::Status status =
      MoveTo(foundation.storage, KvStorage::Create(device, size->layout, size->num_chunks));
  if (!status.ok()) return status;
  foundation.mover = std::make_unique<DeviceChunkMover>(foundation.storage.get());
  status = MoveTo(parts.cache,
                  kvcache::CacheManager::Create({.num_chunks = size->num_chunks,
                                                 .chunk_tokens = options.kv_cache.chunk_tokens,
                                                 .max_slots = options.max_sequences,
                                                 .prefix_cache = options.kv_cache.prefix_cache,
                                                 .eviction = options.kv_cache.eviction},
                                                foundation.mover.get()));
  if (!status.ok()) return status;
  std::unique_ptr<LlamaRunner> runner;
  status = MoveTo(runner,
                  LlamaRunner::Create(*foundation.backend, *foundation.model,
                                      foundation.storage->View(parts.cache->positions().data())));
  parts.runner = std::move(runner);
  return status;
}

}  // namespace

absl::StatusOr<EngineParts> MakeEngineParts(const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<WeightSource>> source = WeightSource::Open(options.model.path);
  if (!source.ok()) return source.status();
  EngineParts parts;
  auto foundation = std::make_shared<Foundation>();
  absl::Status status = LoadText(**source, parts);
  if (status.ok()) status = LoadModel(options, **source, *foundation);
  if (status.ok()) status = MakeCache(options, *foundation, parts);
  if (!status.ok()) return status;

  const kernels::BackendInfo& backend = foundation->backend->info();
  const ModelConfig& config = foundation->model->config();
  const std::filesystem::path path(options.model.path);
  parts.model.served_name = options.model.served_name;
  if (parts.model.served_name.empty()) {
    const std::filesystem::path name = path.has_filename() ? path : path.parent_path();
    parts.model.served_name =
        (std::filesystem::is_directory(path) ? name.filename() : name.stem()).string();
  }
  parts.model.description =
      absl::StrCat((*source)->description(), "; ", backend.name, " ", backend.isa, ", ",
                   backend.threads > 0 ? absl::StrCat(backend.threads, " threads, ") : "",
                   foundation->model->resident_bytes() >> 20, " MiB packed");
  parts.model.warning = foundation->warning;
  parts.model.max_context_tokens = foundation->model->max_context_tokens();
  parts.model.vocab_size = config.vocab_size;
  parts.model.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count();
  parts.kv_chunk_bytes = static_cast<int64_t>(foundation->storage->layout().chunk_bytes());
  parts.window_tokens = config.sliding_window_tokens;
  parts.foundation = std::move(foundation);
  return parts;
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options) {
  absl::StatusOr<EngineParts> parts = MakeEngineParts(options);
  if (!parts.ok()) return parts.status();
  return MakeEngine(*std::move(parts), options);
}

}  // namespace refrain::engine
