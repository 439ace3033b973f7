#ifndef REFRAIN_TOOLS_BENCH_GPU_GRID_H_
#define REFRAIN_TOOLS_BENCH_GPU_GRID_H_

#include <functional>
#include <span>

#include "kernels/dtype.h"
#include "tools/bench/gpu_attention_workload.h"
#include "tools/bench/gpu_bench_device.h"
#include "tools/bench/gpu_report.h"

namespace refrain::bench {

// A row of ChunkAttention's table 3: 32 sequences of n_p keys, the first n_s of them shared, 32
// heads of 128 elements, fp16, on an A100 of 2.0 TB/s.
struct PaperRow {
  int keys = 0;    // n_p
  int shared = 0;  // n_s
  double paper_us = 0;
};
std::span<const PaperRow> PaperRows();
inline constexpr double kPaperBytesPerSecond = 2.0e12;

// What a row may take: K and V read once at 0.85 of the measured copy bandwidth, and a launch.
double BoundSeconds(double kv_bytes, double copy_bytes_per_s);
// The paper's time on a card of this bandwidth.
double ScaledPaperSeconds(double paper_us, double copy_bytes_per_s);

// Layers over which a row rotates so that no K or V is still in the L2 cache when it is read again.
int RotatedLayers(double kv_bytes, size_t l2_bytes);

struct GridSettings {
  std::span<const PaperRow> rows;
  GpuAttentionShape shape;  // of every row, its keys apart
  kernels::DType dtype = kernels::DType::kF16;
  size_t pool_bytes_max = 0;  // rows that need more are left out, and said so
  size_t copied_bytes = 0;    // for the bandwidth
  int rounds = 31;
  int layers = 0;  // to rotate over; 0 = as many as the L2 cache asks for
  std::function<void()> row_measured = [] {};  // the report has it
};

// Whether both hold the same bits: 0 and -0 do not, a NaN and itself do.
bool SameBits(std::span<const float> a, std::span<const float> b);

// Checks, then times every row in both modes, with the copy bandwidth of the same run. What the
// last launch of the last replay has written has to be the bits that the same launch writes by
// itself.
void RunGpuGrid(BenchDevice& device, const GridSettings& settings, GpuReport& report);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_GRID_H_
