#ifndef REFRAIN_TESTS_ENGINE_SCHEDULER_SNAPSHOTS_H_
#define REFRAIN_TESTS_ENGINE_SCHEDULER_SNAPSHOTS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "engine/scheduler.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {

// What tests of the scheduler put its snapshots together from.

inline SequenceId Id(uint64_t id) { return SequenceId{id}; }

// Chunks of 16 tokens, a budget of 32, 4 sequences.
inline SchedulerSnapshot Snapshot(int32_t free_chunks) {
  SchedulerSnapshot s;
  s.limits = {.max_sequences = 4, .step_token_budget = 32, .chunk_tokens = 16};
  s.free_chunks = free_chunks;
  return s;
}

inline RunningEntry Decoding(uint64_t id, int32_t tokens, int32_t chunks) {
  return {.sequence = Id(id),
          .runnable_tokens = 1,
          .decoding = true,
          .next_token = tokens,
          .reserved_tokens = chunks * 16,
          .exclusive_chunks = chunks};
}

inline RunningEntry Prefilling(uint64_t id, int32_t done, int32_t rest, int32_t chunks) {
  return {.sequence = Id(id),
          .runnable_tokens = rest,
          .decoding = false,
          .next_token = done,
          .reserved_tokens = chunks * 16,
          .exclusive_chunks = chunks};
}

inline RunningEntry DecodingOf(int32_t tenant, uint64_t id, int32_t tokens, int32_t chunks) {
  RunningEntry entry = Decoding(id, tokens, chunks);
  entry.tenant = tenant;
  return entry;
}

// So many of its chunks are in `run` of the snapshot's, and in those above it.
inline void Share(RunningEntry* entry, int32_t chunks, int32_t run) {
  entry->exclusive_chunks = entry->reserved_tokens / 16 - chunks;
  entry->shared_run = run;
}

inline WaitingEntry Waiting(uint64_t id, int32_t tenant, int32_t prefill_tokens) {
  return {.sequence = Id(id), .prefill_tokens = prefill_tokens, .tenant = tenant};
}

// The best of several times, for the machine is shared; `check` sees every plan.
template <typename Check>
double BestPlanMicroseconds(const SchedulerSnapshot& snapshot, Check check) {
  double best_us = 1e9;
  for (int i = 0; i < 20 || (i < 1000 && best_us >= 200); ++i) {
    const auto start = std::chrono::steady_clock::now();
    const StepPlan plan = Plan(snapshot);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    best_us = std::min(best_us, time.count());
    check(plan);
  }
  return best_us;
}

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_SCHEDULER_SNAPSHOTS_H_
