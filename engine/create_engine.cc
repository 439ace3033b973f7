#include "engine/create_engine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend_factory.h"
#include "engine/device_chunk_mover.h"
#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "engine/kv_size.h"
#include "engine/kv_storage.h"
#include "engine/largest_steps.h"
#include "engine/llama_runner.h"
#include "engine/load_text.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/own_sampling.h"
#include "engine/pages_ahead.h"
#include "engine/pipelined_runner.h"
#include "engine/second_copy.h"
#include "engine/served_name.h"

namespace refrain::engine {
namespace {

// What the engine's parts point into. Destroyed in reverse order.
struct Foundation {
  std::string warning;  // of the back end's choice or its memory, for the log
  std::unique_ptr<kernels::Backend> backend;
  int32_t most_kv_chunks = 0;     // the model has positions for so many
  bool with_second_copy = false;  // of the model's weights, which may have been too much
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

// With what the back end has to say, which may be more once it holds the weights.
std::string WarningsOf(const Foundation& foundation) {
  std::string warning;
  if (foundation.backend != nullptr) warning = foundation.backend->info().warning;
  AddWarning(foundation.warning, warning);
  return warning;
}

struct KvSize {
  kvcache::KvLayout layout;
  int32_t num_chunks;
  size_t available_bytes;
};

// What fits into the memory that is free now beside `step_bytes`, or that the configuration names.
absl::StatusOr<KvSize> SizeCache(const EngineOptions& options, const ModelConfig& config,
                                 kernels::Backend& backend, int32_t most_chunks,
                                 int64_t step_bytes = 0) {
  absl::StatusOr<kernels::DType> dtype = ParseKvDType(options.kv_cache.dtype, backend, config);
  if (!dtype.ok()) return dtype.status();
  absl::StatusOr<kvcache::KvLayout> layout =
      KvLayoutFor(config, backend.info(), *dtype, options.kv_cache.chunk_tokens);
  if (!layout.ok()) return layout.status();
  constexpr size_t kMostBytes = std::numeric_limits<int64_t>::max();
  const size_t available_bytes = std::min(backend.device().AvailableBytes(), kMostBytes);
  absl::StatusOr<int32_t> chunks = KvChunksFor(
      {.memory_bytes = options.kv_cache.memory_bytes,
       .available_bytes = static_cast<int64_t>(available_bytes),
       .step_bytes = step_bytes,
       .total_bytes = static_cast<int64_t>(std::min(backend.device().TotalBytes(), kMostBytes)),
       .chunk_bytes = static_cast<int64_t>(layout->chunk_bytes()),
       .chunk_tokens = options.kv_cache.chunk_tokens,
       .context_tokens =
           options.max_context_tokens > 0 ? options.max_context_tokens : config.max_context_tokens,
       .asked_context_tokens = options.max_context_tokens,
       .max_sequences = options.max_sequences,
       .most_chunks = most_chunks});
  if (!chunks.ok()) return chunks.status();
  return KvSize{*std::move(layout), *chunks, available_bytes};
}

// Of all weights, each in the type that `type_of` gives for the one that it has in the files.
template <typename TypeOf>
size_t WeightBytes(const WeightSource& source, const TypeOf& type_of) {
  size_t bytes = 0;
  for (int role = 0; role < kNumTensorRoles; ++role) {
    const auto tensor = static_cast<TensorRole>(role);
    const int layers = IsPerLayer(tensor) ? source.config().num_layers : 1;
    for (int layer = 0; layer < layers; ++layer) {
      const absl::StatusOr<WeightView> view = source.Get(tensor, layer);
      if (!view.ok()) continue;  // optional
      bytes += static_cast<size_t>(view->rows) *
               kernels::RowBytes(type_of(view->dtype), view->cols).value_or(0);
    }
  }
  return bytes;
}

// `packed_bytes`: of the weights as the back end keeps them.
absl::Status NoRoomForModel(const WeightSource& source, size_t packed_bytes, size_t free_bytes,
                            const absl::Status& status) {
  const size_t in_file_bytes = WeightBytes(source, [](kernels::DType stored) { return stored; });
  const std::string form =
      packed_bytes == in_file_bytes
          ? " bytes as in the file, "
          : absl::StrCat(" bytes as they are multiplied (backend.compute_dtype; ", in_file_bytes,
                         " in the file), ");
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for the model: its weights are ", packed_bytes, form, free_bytes,
                   " bytes were free", status.ok() ? "" : ": ", std::string(status.message())));
}

// With the memory that its steps need of the back end: what is free behind this, the KV cache may
// share out.
absl::StatusOr<std::unique_ptr<LlamaModel>> MakeModel(const EngineOptions& options,
                                                      const WeightSource& source,
                                                      kernels::ComputeDType compute,
                                                      const KvSize& most, bool second_copy,
                                                      kernels::Backend& backend) {
  const bool paged = options.attention_mode == AttentionModeOption::kPaged;
  absl::StatusOr<std::unique_ptr<LlamaModel>> model =
      LlamaModel::Load(source, backend,
                       {.compute = compute,
                        .max_context_tokens = options.max_context_tokens,
                        .max_positions = most.num_chunks * options.kv_cache.chunk_tokens,
                        .max_rows = options.step_token_budget,
                        .reproducible = options.reproducible,
                        .second_copy = second_copy,
                        .attention_mode = paged ? kernels::AttentionMode::kPaged
                                                : kernels::AttentionMode::kTwoPhase});
  if (!model.ok()) return model;
  const StepLimits limits = {.max_sequences = options.max_sequences,
                             .max_rows = options.step_token_budget,
                             .max_context_tokens = (*model)->max_context_tokens(),
                             .window_tokens = source.config().sliding_window_tokens,
                             .chunk_tokens = options.kv_cache.chunk_tokens,
                             .num_chunks = most.num_chunks};
  for (const StepBatch& step : LargestSteps(limits)) {
    const absl::Status reserved = (*model)->ReserveFor(step, KvViewOf(most.layout));
    if (reserved.ok()) continue;
    return absl::Status(reserved.code(),
                        absl::StrCat("scratch for steps of ", options.step_token_budget,
                                     " tokens: ", std::string(reserved.message()),
                                     "; engine.step_token_budget says how many there are"));
  }
  return model;
}

absl::Status LoadModel(const EngineOptions& options, const WeightSource& source,
                       const BackendChooser& choose, Foundation& foundation) {
  absl::StatusOr<kernels::ComputeDType> compute = ParseComputeDType(options.backend.compute_dtype);
  if (!compute.ok()) return compute.status();
  const ModelConfig& config = source.config();
  if (options.max_context_tokens > config.stretched_context_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.max_context_tokens is ", options.max_context_tokens,
                     "; the model was made for at most ", config.stretched_context_tokens()));
  }
  BackendOptions wanted = options.backend;
  // Its sums may differ with the number of rows, and it rounds.
  wanted.product_library =
      wanted.product_library && !options.reproducible && *compute != kernels::ComputeDType::kF32;
  wanted.most_rows = options.step_token_budget;
  absl::StatusOr<ChosenBackend> chosen = choose(wanted);
  if (!chosen.ok()) return chosen.status();
  foundation.backend = std::move(chosen->backend);
  AddWarning(chosen->note, foundation.warning);
  if (config.qkv_bias && options.kv_cache.dtype.starts_with("fp8")) {
    AddWarning(
        "the model's keys have biases, which fp8 keeps badly: kv_cache.dtype = auto is safer",
        foundation.warning);
  }
  const size_t free_bytes = foundation.backend->device().AvailableBytes();
  const size_t packed_bytes = WeightBytes(source, [&](kernels::DType stored) {
    return foundation.backend->info().packed_as(stored, *compute);
  });
  // A host would give addresses for all of them, and end the process when they are written.
  if (packed_bytes > free_bytes) {
    return NoRoomForModel(source, packed_bytes, free_bytes, absl::OkStatus());
  }
  // Weights take their part later: this is the most it will be.
  absl::StatusOr<KvSize> most =
      SizeCache(options, config, *foundation.backend, std::numeric_limits<int32_t>::max());
  if (!most.ok()) return most.status();
  foundation.most_kv_chunks = most->num_chunks;
  const SecondCopyPlan copy = PlanSecondCopy(source, foundation.backend->info(),
                                             {.wanted = options.model.second_copy,
                                              .compute = *compute,
                                              .reproducible = options.reproducible,
                                              .free_bytes = free_bytes,
                                              .weight_bytes = packed_bytes,
                                              .cache_bytes = options.kv_cache.memory_bytes});
  AddWarning(copy.warning, foundation.warning);
  foundation.with_second_copy = copy.bytes > 0;
  const absl::Status loaded =
      MoveTo(foundation.model, MakeModel(options, source, *compute, *most,
                                         foundation.with_second_copy, *foundation.backend));
  if (absl::IsResourceExhausted(loaded)) {
    return NoRoomForModel(source, packed_bytes, free_bytes, loaded);
  }
  if (loaded.ok() && foundation.with_second_copy && foundation.model->second_copy_bytes() == 0) {
    AddWarning("weights beyond f16 have no second copy (model.second_copy)", foundation.warning);
  }
  return loaded;
}

// The KV cache, or `what` is to stand beside it.
absl::Status NoRoomFor(const std::string& what, const EngineOptions& options, int32_t num_chunks,
                       const absl::Status& status) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for ", what, "the KV cache of ", num_chunks, " chunks (",
      options.kv_cache.memory_bytes > 0 ? "kv_cache.memory_bytes" : "half of what is free",
      "): ", std::string(status.message())));
}

// Memory that steps will take of a host, where pages are there from their first touch on: what
// they have activations in, and as much again for the forms in which products read them; logits;
// and what each thread computes attention and chooses tokens in. A device's is taken by now.
int64_t StepBytes(const Foundation& foundation) {
  constexpr int64_t kThreadBytes = int64_t{2} << 20;
  const kernels::BackendInfo& info = foundation.backend->info();
  if (!info.reads_results_in_place) return 0;
  const LlamaModel& model = *foundation.model;
  return 2 * static_cast<int64_t>(model.activation_bytes()) +
         LlamaRunner::kLogitsRows * model.config().vocab_size *
             static_cast<int64_t>(sizeof(float)) +
         kThreadBytes * std::max(info.threads, 1);
}

// A host gives addresses for more than there is. Asked for, it may be meant: what is short now may
// be free by the time that it is needed.
void WarnIfShort(const EngineOptions& options, int64_t pool_bytes, int64_t available_bytes,
                 Foundation& foundation) {
  if (pool_bytes > available_bytes) {
    AddWarning(absl::StrCat("kv_cache.memory_bytes is ", options.kv_cache.memory_bytes,
                            ", of which ", available_bytes,
                            " bytes are free: when what is cached fills them, the system may end "
                            "the process"),
               foundation.warning);
    return;
  }
  const bool on_host = foundation.backend->info().reads_results_in_place;
  const int64_t server_bytes = options.limits.server_bytes;
  if (on_host && server_bytes > 0 &&
      server_bytes > available_bytes - pool_bytes - StepBytes(foundation)) {
    AddWarning(
        absl::StrCat("of ", available_bytes, " bytes that are free the KV cache may take ",
                     pool_bytes, ", steps ", StepBytes(foundation),
                     " and requests and connections ", server_bytes,
                     " (limits.bodies_bytes, limits.grpc_memory_bytes): when they do, the system "
                     "may end the process"),
        foundation.warning);
  }
}

absl::Status MakeCache(const EngineOptions& options, Foundation& foundation, EngineParts& parts) {
  const LlamaModel& model = *foundation.model;
  kernels::Device& device = foundation.backend->device();
  absl::StatusOr<KvSize> size = SizeCache(options, model.config(), *foundation.backend,
                                          foundation.most_kv_chunks, StepBytes(foundation));
  if (!size.ok()) return size.status();
  absl::Status status =
      MoveTo(foundation.storage, KvStorage::Create(device, size->layout, size->num_chunks));
  if (absl::IsResourceExhausted(status)) return NoRoomFor("", options, size->num_chunks, status);
  if (!status.ok()) return status;
  const size_t pool_bytes = static_cast<size_t>(size->num_chunks) * size->layout.chunk_bytes();
  WarnIfShort(options, static_cast<int64_t>(pool_bytes),
              static_cast<int64_t>(size->available_bytes), foundation);
  foundation.mover =
      std::make_unique<DeviceChunkMover>(foundation.storage.get(), foundation.backend.get());
  return MoveTo(parts.cache,
                kvcache::CacheManager::Create({.num_chunks = size->num_chunks,
                                               .chunk_tokens = options.kv_cache.chunk_tokens,
                                               .max_slots = options.max_sequences,
                                               .prefix_cache = options.kv_cache.prefix_cache,
                                               .eviction = options.kv_cache.eviction},
                                              foundation.mover.get()));
}

// What clients are told, and may ask for by default, is what can be served.
int32_t ContextThatFits(int64_t kv_capacity_tokens, Foundation& foundation) {
  const int32_t model_tokens = foundation.model->max_context_tokens();
  if (model_tokens <= kv_capacity_tokens) return model_tokens;
  AddWarning(absl::StrCat("requests may have ", kv_capacity_tokens,
                          " tokens, which the KV cache holds, not the model's ", model_tokens,
                          ": kv_cache.memory_bytes decides"),
             foundation.warning);
  return static_cast<int32_t>(kv_capacity_tokens);
}

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeRunner(const EngineOptions& options,
                                                        Foundation& foundation,
                                                        const kernels::KvPoolView& kv) {
  kernels::Backend& backend = *foundation.backend;
  LlamaModel& model = *foundation.model;
  absl::StatusOr<std::unique_ptr<kernels::TokenSampler>> sampler =
      backend.MakeTokenSampler({.num_slots = options.max_sequences,
                                .vocab = model.config().vocab_size,
                                .max_in_flight = PipelinedRunner::kMaxInFlight});
  if (!sampler.ok()) return sampler.status();
  if (*sampler == nullptr) {
    return LlamaRunner::Create(backend, model, kv, foundation.mover.get());
  }
  return PipelinedRunner::Create(backend, model, kv, *std::move(sampler), options.max_sequences);
}

absl::Status MakeFoundation(const EngineOptions& options, const WeightSource& source,
                            const BackendChooser& choose, Foundation& foundation,
                            EngineParts& parts) {
  absl::Status status = LoadModel(options, source, choose, foundation);
  if (status.ok()) status = MakeCache(options, foundation, parts);
  if (!status.ok()) return status;
  status = MoveTo(
      parts.runner,
      MakeRunner(options, foundation, foundation.storage->View(parts.cache->positions().data())));
  if (!absl::IsResourceExhausted(status)) return status;
  return NoRoomFor("logits and the choice of tokens beside ", options,
                   parts.cache->options().num_chunks, status);
}

// Of a pool in host memory; a device's is there from the start.
std::unique_ptr<PagesAhead> TouchAhead(const Foundation& foundation,
                                       const kvcache::CacheManager& cache) {
  const KvStorage* const storage = foundation.storage.get();
  const PagesAhead::Pool pool = {.chunk_bytes = storage->layout().chunk_bytes(),
                                 .chunk_tokens = cache.options().chunk_tokens,
                                 .num_chunks = cache.options().num_chunks};
  try {
    return std::make_unique<PagesAhead>(
        pool, [storage](size_t begin, size_t end) { return storage->Populate(begin, end); });
  } catch (const std::system_error&) {
    return nullptr;  // the system has no thread for it: pages are touched when they are needed
  }
}

// After a device had no room. A cache of a size that was asked for, with what stands beside it, is
// not to be had elsewhere.
bool MayRunOnHost(const EngineOptions& options, const Foundation& foundation) {
  const bool on_host =
      foundation.backend == nullptr || foundation.backend->info().reads_results_in_place;
  const bool model_fits = foundation.model != nullptr;
  return !on_host && !(model_fits && options.kv_cache.memory_bytes > 0);
}

}  // namespace

absl::StatusOr<EngineParts> MakeEngineParts(const EngineOptions& options) {
  return MakeEngineParts(options,
                         [](const BackendOptions& backend) { return ChooseBackend(backend); });
}

absl::StatusOr<EngineParts> MakeEngineParts(const EngineOptions& options,
                                            const BackendChooser& choose) {
  absl::StatusOr<std::unique_ptr<WeightSource>> source = WeightSource::Open(options.model.path);
  if (!source.ok()) return source.status();
  // In front of what stands on it, as in EngineParts: an exception on the way ends both.
  auto foundation = std::make_shared<Foundation>();
  EngineParts parts;
  absl::Status status = LoadText(options.model, **source, parts);
  if (options.model.own_sampling_defaults) {
    parts.model.sampling = OwnSampling(**source, &parts.model.warning);
  }
  if (status.ok()) status = MakeFoundation(options, **source, choose, *foundation, parts);
  const auto make_instead = [&](const EngineOptions& other, const std::string& note) {
    parts.runner.reset();
    parts.cache.reset();
    foundation = std::make_shared<Foundation>();
    status = MakeFoundation(other, **source, choose, *foundation, parts);
    AddWarning(note, foundation->warning);
  };
  if (absl::IsResourceExhausted(status) && foundation->with_second_copy) {
    EngineOptions without = options;
    without.model.second_copy = SecondCopyOption::kOff;
    make_instead(without, absl::StrCat("there is no second copy of the weights "
                                       "(model.second_copy): ",
                                       std::string(status.message())));
  }
  if (absl::IsResourceExhausted(status) && options.backend.kind == "auto" &&
      MayRunOnHost(options, *foundation)) {
    // As where there is no such device.
    EngineOptions on_host = options;
    on_host.backend.kind = "cpu";
    on_host.backend.isa = IsaOnHost(options.backend.isa);
    make_instead(on_host, absl::StrCat(foundation->backend->info().name,
                                       " is not used: ", std::string(status.message())));
  }
  if (!status.ok()) return WithNote(status, WarningsOf(*foundation));

  const kernels::BackendInfo& backend = foundation->backend->info();
  const ModelConfig& config = foundation->model->config();
  parts.model.served_name = options.model.served_name.empty() ? ServedNameOfPath(options.model.path)
                                                              : options.model.served_name;
  const size_t second_copy_bytes = foundation->model->second_copy_bytes();
  parts.model.description = absl::StrCat(
      (*source)->description(), "; ", backend.name, " ", backend.isa, ", ",
      backend.threads > 0 ? absl::StrCat(backend.threads, " threads, ") : "",
      backend.products.empty() ? "" : absl::StrCat("products by ", backend.products, ", "),
      foundation->model->resident_bytes() >> 20, " MiB packed",
      second_copy_bytes == 0
          ? ""
          : absl::StrCat(" (", second_copy_bytes >> 20, " of them a second copy in f16)"),
      ", KV ", std::string(kernels::Traits(foundation->storage->View(nullptr).dtype).name),
      foundation->model->attention_mode() == kernels::AttentionMode::kPaged ? ", paged attention"
                                                                            : "");
  parts.model.max_context_tokens =
      ContextThatFits(parts.cache->stats().capacity_tokens(), *foundation);
  AddWarning(WarningsOf(*foundation), parts.model.warning);
  parts.model.vocab_size = config.vocab_size;
  parts.model.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count();
  if (backend.reads_results_in_place) parts.pages_ahead = TouchAhead(*foundation, *parts.cache);
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
