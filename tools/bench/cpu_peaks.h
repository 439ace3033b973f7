#ifndef REFRAIN_TOOLS_BENCH_CPU_PEAKS_H_
#define REFRAIN_TOOLS_BENCH_CPU_PEAKS_H_

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

// What this machine can do at most, measured in the run that uses it: benchmarks print their
// results as shares of these. On shared hosts both vary by the minute.
namespace refrain::bench {

// Which clock measures. kCpu counts the time this process really ran, over all threads: on a busy
// machine, with one thread, it says more than the wall clock.
enum class Clock { kWall, kCpu };

double Seconds(Clock clock);

// Streaming reads of memory far larger than the caches, on all threads of `pool`; best of several.
double ReadBytesPerSecond(kernels::cpu::ThreadPool& pool, Clock clock);

// Independent f32 multiply-adds in registers with the vectors of `isa`; two operations each.
double F32FlopsPerSecond(kernels::cpu::ThreadPool& pool, kernels::cpu::Isa isa, Clock clock);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_CPU_PEAKS_H_
