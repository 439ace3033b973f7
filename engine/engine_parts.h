#ifndef REFRAIN_ENGINE_ENGINE_PARTS_H_
#define REFRAIN_ENGINE_ENGINE_PARTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "engine/pages_ahead.h"
#include "engine/scheduler.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

// What an engine is put together from; it owns all of it.
struct EngineParts {
  EngineParts() = default;
  EngineParts(EngineParts&&) = default;
  EngineParts& operator=(EngineParts&&) = delete;  // what stands on others would outlive them

  // What the parts below point into (weights, device memory): destroyed last.
  std::shared_ptr<void> foundation;
  ModelInfo model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // may be null
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<kvcache::CacheManager> cache;  // max_slots = max_sequences
  std::unique_ptr<PagesAhead> pages_ahead;       // null: memory is touched by whoever uses it
  int64_t kv_chunk_bytes = 0;                    // of K and V in one chunk, all layers
  int32_t window_tokens = 0;                     // the model's sliding window, 0 = none
  std::unique_ptr<Clock> clock;                  // null = the steady clock
  PlanFunction planner = &Plan;                  // the scheduler
};

// Loads the model and makes what serves it.
absl::StatusOr<EngineParts> MakeEngineParts(const EngineOptions& options);

// Starts the engine's threads. Reads of the options: limits, max_sequences, step_token_budget,
// policy, encode_threads. INVALID_ARGUMENT names an option that cannot work and why.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(EngineParts parts, const EngineOptions& options);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENGINE_PARTS_H_
