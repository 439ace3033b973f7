#ifndef REFRAIN_TOOLS_BENCH_LINEAR_BENCH_H_
#define REFRAIN_TOOLS_BENCH_LINEAR_BENCH_H_

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/machine_peaks.h"

namespace refrain::bench {

enum class ProductOp {
  kLinear,
  kGateUp,  // two weights, SwiGLU between
  kArgMax,  // LinearArgMax, of quantised weights
};

// Which rows are coarse (LinearArgs::coarse_rows), computed with activations of 8 bits.
enum class CoarseRows {
  kNone,
  kAll,
  kMost,  // all but each eighth, about as in a step of a prompt of 512 tokens
};

// What to measure; an empty list means all that there is.
struct LinearBenchOptions {
  std::vector<std::string> dtypes;  // names of kernels::DType
  std::vector<int64_t> rows;
  std::vector<std::string> shapes;  // "NxK"
  ProductOp op = ProductOp::kLinear;
  CoarseRows coarse = CoarseRows::kNone;  // not of kArgMax
  bool int8 = false;                      // activations of 8 bits beside quantised weights
  bool second_copy = false;               // kernels::PackOptions::second_copy
  double min_seconds = 0.15;              // per case
  // Bytes of weights that calls go round in: above the caches for a decode step of a large model,
  // 0 for one weight that stays in the cache.
  size_t working_set_bytes = size_t{256} << 20;
};

// Checks each case against double arithmetic, then times it, and prints one line of a table: median
// and best time; from the best, bytes of weights per second and operations per second, and their
// shares of the peaks (operations: of what the back end multiplies by, ProductPeak).
BenchOutcome RunLinearBench(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
                            const MachinePeaks& peaks);

// Whether there is such a shape, "NxK"; the list of all, with commas.
bool IsProductShape(std::string_view name);
std::string ProductShapes();

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_LINEAR_BENCH_H_
