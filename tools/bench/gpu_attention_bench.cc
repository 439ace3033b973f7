// Times attention on a CUDA device beside what the same run measured the device to be capable of.
// Every case is first compared with double arithmetic on some of its rows. K and V are random, cold
// in the L2 cache: launches go from layer to layer.
//
//   gpu_attention_bench [--suites NAMES] [--device N] [--rounds N] [--tiny] [--json FILE]
//                       [--markdown FILE]
//
// Suites (a list with commas; all by default):
//   grid     ChunkAttention's table 3, two-phase and paged, against bandwidth and the paper's times
//
// --tiny runs small shapes of the same: for the emulated device, where times mean nothing.
// Exit status 1 where a result is wrong or a bound was missed; of --tiny, where a result is wrong.

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "tools/bench/gpu_bench_device.h"
#include "tools/bench/gpu_bench_options.h"
#include "tools/bench/gpu_grid.h"
#include "tools/bench/gpu_report.h"

namespace refrain::bench {
namespace {

constexpr PaperRow kTinyRows[] = {{128, 0, 332.5}, {128, 64, 198.9}, {128, 128, 56.0}};

void RunGrid(const GpuBenchOptions& options, BenchDevice& device, GpuReport& report) {
  GridSettings settings;
  settings.rounds = options.rounds;
  if (options.tiny) {
    settings.rows = kTinyRows;
    settings.shape = {.slots = 3, .num_heads = 2, .num_kv_heads = 2, .head_dim = 64};
    settings.pool_bytes_max = settings.copied_bytes = size_t{4} << 20;
    settings.layers = 2;
  } else {
    settings.rows = PaperRows();
    settings.shape = {.slots = 32, .num_heads = 32, .num_kv_heads = 32, .head_dim = 128};
    settings.copied_bytes = size_t{2} << 30;
    settings.pool_bytes_max = device.runtime().FreeBytes() / 10 * 9;
  }
  settings.row_measured = [&] { SaveUnfinished(options, report); };
  RunGpuGrid(device, settings, report);
}

int Run(const GpuBenchOptions& options) {
  int index = 0;
  if (!absl::SimpleAtoi(options.place, &index) || index < 0) {
    RefuseGpuBench(options, "cannot use --device " + options.place);
  }
  BenchDevice device(index);
  const kernels::cuda::DeviceProperties& properties = device.runtime().properties();
  GpuReport report =
      BeginGpuReport(options, properties.name + ", sm_" + std::to_string(properties.capability()));
  RunGrid(options, device, report);
  return EndGpuReport(options, std::move(report));
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) {
  return refrain::bench::Run(refrain::bench::ParseGpuBenchOptions(argc, argv,
                                                                  {.program = "gpu_attention_bench",
                                                                   .place_flag = "--device",
                                                                   .place = "0",
                                                                   .suites = {"grid"},
                                                                   .rounds = 31}));
}
