#ifndef REFRAIN_TOOLS_BENCH_CPU_PEAKS_H_
#define REFRAIN_TOOLS_BENCH_CPU_PEAKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/dtype.h"

// What this machine can do at most, measured in the run that uses it: benchmarks print their
// results as shares of these. On shared hosts both vary by the minute.
namespace refrain::bench {

// Which clock measures. kCpu counts the time this process really ran, over all threads: on a busy
// machine, with one thread, it says more than the wall clock.
enum class Clock { kWall, kCpu };

double Seconds(Clock clock);

// The multiply-adds that a product is made of: f32 vectors, pairs of 16-bit integers by AVX-512
// VNNI, pairs of bf16 by AVX-512 BF16, or tiles of bf16 or of bytes by AMX.
enum class Arithmetic { kF32, kWords, kBf16Dots, kBf16Tiles, kInt8Tiles };

// What attention over such K and V is computed with at a level, where rows are many.
Arithmetic AttentionArithmetic(kernels::cpu::Isa isa, kernels::DType kv, bool reproducible);
const char* Name(Arithmetic arithmetic);

// Probes of the two peaks, one short try at a time, to be mixed with what is measured. Not
// thread-safe; `pool` outlives it.
class PeakProbe {
 public:
  PeakProbe(kernels::cpu::ThreadPool& pool, kernels::cpu::Isa isa);
  ~PeakProbe();
  PeakProbe(const PeakProbe&) = delete;
  PeakProbe& operator=(const PeakProbe&) = delete;

  // Bytes per second of streaming reads of memory far larger than the caches, on all threads.
  double Read(Clock clock);
  // Operations per second of independent multiply-adds (two each) in registers, f32 ones with the
  // vectors of the level, on all threads. The level has the arithmetic.
  double MultiplyAdd(Arithmetic arithmetic, Clock clock);

 private:
  void MapWords();

  kernels::cpu::ThreadPool& pool_;
  kernels::cpu::Isa isa_;
  uint64_t* words_ = nullptr;  // what Read reads, from its first call on
};

// The best of several tries.
double ReadBytesPerSecond(kernels::cpu::ThreadPool& pool, Clock clock);
double FlopsPerSecond(kernels::cpu::ThreadPool& pool, kernels::cpu::Isa isa, Arithmetic arithmetic,
                      Clock clock);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_CPU_PEAKS_H_
