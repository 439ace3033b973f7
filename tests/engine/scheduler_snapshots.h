#ifndef REFRAIN_TESTS_ENGINE_SCHEDULER_SNAPSHOTS_H_
#define REFRAIN_TESTS_ENGINE_SCHEDULER_SNAPSHOTS_H_

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>

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

// This thread's time for a plan, the median of 21, in microseconds. What others on the machine do
// to its caches and its clock counts, too: the least of 60 such medians, with rests that outlast a
// busy spell, or the first below 200. `check` sees every plan.
template <typename Check>
double PlanMicroseconds(const SchedulerSnapshot& snapshot, Check check) {
  const auto thread_us = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  };
  double least_us = 1e9;
  for (int series = 0; series < 60 && least_us >= 200; ++series) {
    if (series > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::array<double, 21> times_us;
    for (double& time_us : times_us) {
      const double start_us = thread_us();
      const StepPlan plan = Plan(snapshot);
      time_us = thread_us() - start_us;
      check(plan);
    }
    const auto median = times_us.begin() + times_us.size() / 2;
    std::nth_element(times_us.begin(), median, times_us.end());
    least_us = std::min(least_us, *median);
  }
  return least_us;
}

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_SCHEDULER_SNAPSHOTS_H_
