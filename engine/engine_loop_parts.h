#ifndef REFRAIN_ENGINE_ENGINE_LOOP_PARTS_H_
#define REFRAIN_ENGINE_ENGINE_LOOP_PARTS_H_

#include <cstdint>

#include "engine/clock.h"
#include "engine/scheduler.h"

namespace refrain::kvcache {
class CacheManager;
}  // namespace refrain::kvcache

namespace refrain::engine {

class AdmissionLedger;
class EngineObserver;
class ModelRunner;
class PagesAhead;
class RequestQueue;
class Tokenizer;
class TurnMemory;

struct LoopOptions {
  SchedulerLimits scheduler;
  int32_t window_tokens = 0;     // the model's sliding window, 0 = none
  bool isolate_tenants = false;  // kv_cache.isolation = api_key
  double stall_s = 0;            // EngineOptions::stall_s
  PlanFunction planner = &Plan;
};

// What the loop works on; all outlive it.
struct EngineLoopParts {
  ModelRunner* runner = nullptr;
  kvcache::CacheManager* cache = nullptr;
  const Tokenizer* tokenizer = nullptr;  // for the bytes that stop strings are matched on
  RequestQueue* queue = nullptr;
  AdmissionLedger* ledger = nullptr;
  const Clock* clock = nullptr;
  TurnMemory* turns = nullptr;         // remembers what conversations were answered; may be null
  EngineObserver* observer = nullptr;  // is told what happens; may be null
  PagesAhead* pages_ahead = nullptr;   // is told what will be needed; may be null
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENGINE_LOOP_PARTS_H_
