#ifndef REFRAIN_TOOLS_BENCH_MACHINE_PEAKS_H_
#define REFRAIN_TOOLS_BENCH_MACHINE_PEAKS_H_

#include <cstdint>
#include <string>

#include "kernels/cpu/isa.h"
#include "kernels/dtype.h"

namespace refrain::bench {

// What this machine can do at most, measured: what a kernel's time is a share of. A value is 0
// where the machine lacks the instructions.
struct MachinePeaks {
  double read_bytes_per_s = 0;         // from memory, huge pages, by `threads` threads
  double cached_read_bytes_per_s = 0;  // of 4 MiB per thread, over and over
  double fma_flops_per_s = 0;          // f32 fused multiply-add, widest registers
  double int8_ops_per_s = 0;           // u8 x s8 products and sums; without VNNI: of 16 bits
  double bf16_dot_flops_per_s = 0;     // pairs of bf16, AVX-512 BF16
  double bf16_tile_flops_per_s = 0;    // AMX
  double int8_tile_ops_per_s = 0;      // AMX
};

// Takes about a second. Disturbed by anything else that runs, so the best of several tries.
MachinePeaks MeasurePeaks(int threads);

// The peak of what the CPU back end multiplies `rows` rows with such a weight by, packed as it is
// stored, at a level.
double ProductPeak(const MachinePeaks& peaks, kernels::cpu::Isa isa, kernels::DType weight,
                   int64_t rows);

std::string ProcessorName();  // from /proc/cpuinfo

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_MACHINE_PEAKS_H_
