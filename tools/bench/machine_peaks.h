#ifndef REFRAIN_TOOLS_BENCH_MACHINE_PEAKS_H_
#define REFRAIN_TOOLS_BENCH_MACHINE_PEAKS_H_

#include <string>

namespace refrain::bench {

// What this machine can do at most, measured: what a kernel's time is a share of. A value is 0
// where the machine lacks the instructions.
struct MachinePeaks {
  double read_bytes_per_s = 0;         // from memory, huge pages, by `threads` threads
  double cached_read_bytes_per_s = 0;  // of 4 MiB per thread, over and over
  double fma_flops_per_s = 0;          // f32 fused multiply-add, widest registers
  double int8_ops_per_s = 0;           // u8 x s8 products and sums; without VNNI: of 16 bits
};

// Takes about a second. Disturbed by anything else that runs, so the best of several tries.
MachinePeaks MeasurePeaks(int threads);

std::string ProcessorName();  // from /proc/cpuinfo

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_MACHINE_PEAKS_H_
