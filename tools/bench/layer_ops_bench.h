#ifndef REFRAIN_TOOLS_BENCH_LAYER_OPS_BENCH_H_
#define REFRAIN_TOOLS_BENCH_LAYER_OPS_BENCH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/machine_peaks.h"

namespace refrain::bench {

// The operations of a layer that are no products of their own: embed, rms_norm, rope_append,
// swiglu, add, and logits (the norm of chosen rows and the output head).
struct LayerOpsBenchOptions {
  std::string op;             // "" = all
  std::vector<int64_t> rows;  // empty = 1, 32, 512
  double min_seconds = 0.15;  // per case
};

bool IsLayerOp(std::string_view name);

// Compares each case with the reference back end, then times it, and prints one line of a table:
// median and best time; from the best, bytes read and written per second and operations per second,
// and their shares of the peaks. Data stays in the cache where it fits, as it does in a layer.
BenchOutcome RunLayerOpsBench(kernels::cpu::CpuBackend& backend,
                              const LayerOpsBenchOptions& options, const MachinePeaks& peaks);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_LAYER_OPS_BENCH_H_
