#include "tools/bench/gpu_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace refrain::bench {

namespace gpu = kernels::cuda;

namespace {

constexpr PaperRow kPaperRows[] = {
    {1024, 0, 332.5},  {1024, 512, 198.9},  {1024, 768, 131.2},  {1024, 1024, 56.0},
    {2048, 0, 655.4},  {2048, 1024, 384.4}, {2048, 1536, 247.1}, {2048, 2048, 110.5},
    {4096, 0, 1301.8}, {4096, 2048, 747.6}, {4096, 3072, 477.7}, {4096, 4096, 206.2},
};

// In parts of a head's output's length. Rounding queries and weights to the cache's type moves it
// by about half a unit in their last place, a few times that in the worst of many.
double ErrorAllowed(kernels::DType dtype) {
  return dtype == kernels::DType::kF16 ? 0x1p-8 : 0x1p-6;
}

const char* Name(gpu::AttentionKernel kernel) {
  switch (kernel) {
    case gpu::AttentionKernel::kGeneric:
      return "generic";
    case gpu::AttentionKernel::kMma:
      return "mma";
    case gpu::AttentionKernel::kHopper:
      return "hopper";
  }
  return "";
}

struct ModeResult {
  GraphTiming timing;   // of one launch
  double serial_s = 0;  // two_phase: the same where each waits for the end of the one before
  double error = 0;
  bool replayed_alike = true;  // the last launch timed wrote what the same one writes alone
  std::string kernel;
};

ModeResult RunMode(BenchDevice& device, const PatternPool& pool, const GpuAttentionShape& shape,
                   int layers, int rounds) {
  GpuAttentionWorkload workload(device, pool, shape, layers);
  ModeResult result;
  result.kernel = Name(workload.kernel());
  result.error = workload.LargestError();
  const std::vector<float> alone = workload.Output();  // of the last layer, as a graph ends with it
  // Enough launches in a graph that its own start does not count.
  const int wanted = rounds > 3 ? 16 : 1;
  const int launches = std::max(layers, wanted / layers * layers);
  const auto time = [&](bool early) {
    workload.StartEarly(early);
    workload.ClearOutput();
    const GraphTiming timing = device.TimeGraph(
        [&] {
          for (int i = 0; i < launches; ++i) workload.Launch(i % layers);
        },
        rounds);
    // To the bit: one list of tiles, cut and merged in one order.
    result.replayed_alike &= SameBits(workload.Output(), alone);
    return timing;
  };
  if (shape.mode == kernels::AttentionMode::kTwoPhase) {
    result.serial_s = time(false).median_s / launches;
  }
  result.timing = time(true);
  for (double* seconds : {&result.timing.median_s, &result.timing.least_s, &result.timing.most_s}) {
    *seconds /= launches;
  }
  return result;
}

std::string RowName(const PaperRow& row, const char* mode) {
  return "n_p " + std::to_string(row.keys) + ", n_s " + std::to_string(row.shared) + ", " + mode;
}

}  // namespace

std::span<const PaperRow> PaperRows() { return kPaperRows; }

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

double BoundSeconds(double kv_bytes, double copy_bytes_per_s) {
  return kv_bytes / (0.85 * copy_bytes_per_s) + 4e-6;
}

double ScaledPaperSeconds(double paper_us, double copy_bytes_per_s) {
  return paper_us * 1e-6 * kPaperBytesPerSecond / copy_bytes_per_s;
}

int RotatedLayers(double kv_bytes, size_t l2_bytes) {
  const double wanted = 4.0 * static_cast<double>(l2_bytes);
  return std::clamp(static_cast<int>(std::ceil(wanted / kv_bytes)), 4, 32);
}

void RunGpuGrid(BenchDevice& device, const GridSettings& settings, GpuReport& report) {
  const size_t l2_bytes = device.runtime().properties().l2_bytes;
  const auto layers_of = [&](const GpuAttentionShape& shape) {
    if (settings.layers > 0) return settings.layers;
    return RotatedLayers(shape.PhysicalKvBytes(), l2_bytes);
  };
  const auto shape_of = [&](const PaperRow& row) {
    GpuAttentionShape shape = settings.shape;
    shape.keys = row.keys;
    shape.shared_keys = row.shared;
    return shape;
  };
  size_t pool_bytes = settings.copied_bytes;
  for (const PaperRow& row : settings.rows) {
    const GpuAttentionShape shape = shape_of(row);
    const size_t bytes = GpuAttentionWorkload::PoolBytes(shape, layers_of(shape));
    if (bytes <= settings.pool_bytes_max) pool_bytes = std::max(pool_bytes, bytes);
  }
  const PatternPool pool(device, pool_bytes, settings.dtype);
  const double bandwidth = device.CopyBytesPerSecond(
      pool.data(), pool.Period(settings.copied_bytes / 2) * 2, settings.rounds);
  report.measured.emplace_back("device copy bandwidth, GB/s (read + written)", bandwidth * 1e-9);

  GpuTable& table = report.tables.emplace_back();
  table.name = "decode";
  table.about =
      "ChunkAttention's grid: " + std::to_string(settings.shape.slots) + " sequences, " +
      std::to_string(settings.shape.num_heads) + " heads of " +
      std::to_string(settings.shape.head_dim) + ", " +
      std::string(kernels::Traits(settings.dtype).name) +
      ". One layer, of a graph that goes from layer to layer; medians. The bound is K and V read "
      "once at 0.85 of the copy bandwidth and 4 us; paper: its A100 time, scaled by bandwidth. A "
      "launch starts while the one before ends (programmatic dependent launch); serial: it does "
      "not.";
  table.columns = {"n_p",
                   "n_s",
                   "MB",
                   "bound us",
                   "two_phase us",
                   "least",
                   "most",
                   "two_phase serial us",
                   "bound / two_phase",
                   "paper us",
                   "paper / two_phase",
                   "paged us",
                   "paged / two_phase",
                   "error",
                   "kernel"};
  for (const PaperRow& row : settings.rows) {
    GpuAttentionShape shape = shape_of(row);
    const double bytes = shape.PhysicalKvBytes();
    const int layers = layers_of(shape);
    if (GpuAttentionWorkload::PoolBytes(shape, layers) > pool.bytes()) {
      report.misses.push_back(RowName(row, "left out: it needs more memory than there is"));
      continue;
    }
    const ModeResult two_phase = RunMode(device, pool, shape, layers, settings.rounds);
    shape.mode = kernels::AttentionMode::kPaged;
    const ModeResult paged = RunMode(device, pool, shape, layers, settings.rounds);
    const double bound = BoundSeconds(bytes, bandwidth);
    const double paper = ScaledPaperSeconds(row.paper_us, bandwidth);
    const double took = two_phase.timing.median_s;
    const double error = std::max(two_phase.error, paged.error);
    table.rows.push_back({row.keys,
                          row.shared,
                          {bytes * 1e-6, 1},
                          {bound * 1e6, 1},
                          {took * 1e6, 1},
                          {two_phase.timing.least_s * 1e6, 1},
                          {two_phase.timing.most_s * 1e6, 1},
                          {two_phase.serial_s * 1e6, 1},
                          {bound / took, 2},
                          {paper * 1e6, 1},
                          {paper / took, 2},
                          {paged.timing.median_s * 1e6, 1},
                          {paged.timing.median_s / took, 2},
                          {error, 5},
                          two_phase.kernel});
    for (const auto& [mode, result] :
         {std::pair("two_phase", &two_phase), std::pair("paged", &paged)}) {
      if (!(result->error <= ErrorAllowed(settings.dtype))) {
        report.errors.push_back(RowName(row, mode) + ": " + std::to_string(result->error) +
                                " of its length away from exact, allowed is " +
                                std::to_string(ErrorAllowed(settings.dtype)));
      }
      if (!result->replayed_alike) {
        report.errors.push_back(
            RowName(row, mode) +
            ": the launches that were timed give another result than one alone");
      }
    }
    if (took > bound) report.misses.push_back(RowName(row, "two_phase is over the bound"));
    if (took > paper) report.misses.push_back(RowName(row, "two_phase is slower than the paper"));
    settings.row_measured();
  }
  device.Release(pool.data());
}

}  // namespace refrain::bench
