// Times the CPU back end's operations, one at a time, beside what the machine can do at most.
//
// kUsage says of what. Attention has a benchmark of its own.
// Every case is compared with double arithmetic before it is timed. Exit status: 0; 1 if one was
// wrong, 2 when nothing was measured. Two runs are only comparable when the peaks that they print
// are alike, and medians only when nothing else ran.

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/dtype.h"
#include "tools/bench/layer_ops_bench.h"
#include "tools/bench/linear_bench.h"
#include "tools/bench/machine_peaks.h"

namespace refrain::bench {
namespace {

constexpr const char* kUsage =
    R"(kernel_bench [--op=linear|gate_up|argmax] [--dtype=q4_0,q8_0] [--shape=1536x576]
             [--rows=1,8,512] [--coarse=none|all|most] [--int8] [--second-copy]
             [--cached] [--isa=auto] [--threads=0] [--seconds=0.15]
kernel_bench --op=layer|embed|rms_norm|rope_append|swiglu|add|logits [--rows=1,32,512]
             [--isa=auto] [--threads=0] [--seconds=0.15]

--coarse: rows behind the first 64 positions, in all but the last layers, which have activations of
8 bits beside quantised weights; most: each eighth is another. argmax: the greatest of a row's
products, what the head of a greedy request computes. --second-copy: with model.second_copy's copy
of the weights, where the level has one. The second form takes the operations of a
layer that are no products (layer: all of them), and the output head.
)";

bool ParseProductOp(std::string_view value, ProductOp& out) {
  if (value == "linear") out = ProductOp::kLinear;
  if (value == "gate_up") out = ProductOp::kGateUp;
  if (value == "argmax") out = ProductOp::kArgMax;
  return value == "linear" || value == "gate_up" || value == "argmax";
}

bool ParseCoarse(std::string_view value, CoarseRows& out) {
  if (value == "none") out = CoarseRows::kNone;
  if (value == "all") out = CoarseRows::kAll;
  if (value == "most") out = CoarseRows::kMost;
  return value == "none" || value == "all" || value == "most";
}

bool IsDType(std::string_view name) {
  return std::ranges::any_of(kernels::kDTypes, [&](const auto& one) { return one.name == name; });
}

struct Arguments {
  bool products = true;
  kernels::cpu::CpuOptions cpu;
  LinearBenchOptions linear;
  LayerOpsBenchOptions layer;
};

// Sets the option that `argument` ("--name=value") names; false if there is none.
bool Parse(std::string_view argument, Arguments& out) {
  const size_t equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  const std::string value(equals == std::string_view::npos ? "" : argument.substr(equals + 1));
  const std::vector<std::string> list = absl::StrSplit(value, ',');
  if (name == "--op") {
    out.products = ParseProductOp(value, out.linear.op);
    if (value != "layer") out.layer.op = value;
    return out.products || value == "layer" || IsLayerOp(value);
  }
  if (name == "--dtype") return std::ranges::all_of(out.linear.dtypes = list, IsDType);
  if (name == "--shape") return std::ranges::all_of(out.linear.shapes = list, IsProductShape);
  if (name == "--rows") {
    for (const std::string& item : list) {
      if (!absl::SimpleAtoi(item, &out.linear.rows.emplace_back()) || out.linear.rows.back() < 1) {
        return false;
      }
    }
    out.layer.rows = out.linear.rows;
    return true;
  }
  if (name == "--isa") return !(out.cpu.isa = value).empty();
  if (name == "--threads") return absl::SimpleAtoi(value, &out.cpu.threads);
  if (name == "--seconds") {
    return absl::SimpleAtod(value, &out.linear.min_seconds) &&
           absl::SimpleAtod(value, &out.layer.min_seconds);
  }
  if (name == "--coarse") return ParseCoarse(value, out.linear.coarse);
  if (name == "--second-copy") {
    out.linear.second_copy = true;
    return true;
  }
  if (name == "--int8") {
    out.linear.int8 = true;
    return true;
  }
  if (name == "--cached") {
    out.linear.working_set_bytes = 0;
    return true;
  }
  return false;
}

void PrintPeaks(const MachinePeaks& peaks) {
  std::printf("peaks: read %.1f GB/s, of 4 MiB %.1f GB/s; fma %.0f GFLOP/s; int8 %.0f GOP/s",
              peaks.read_bytes_per_s / 1e9, peaks.cached_read_bytes_per_s / 1e9,
              peaks.fma_flops_per_s / 1e9, peaks.int8_ops_per_s / 1e9);
  if (peaks.bf16_dot_flops_per_s > 0) {
    std::printf("; bf16 dots %.0f GFLOP/s", peaks.bf16_dot_flops_per_s / 1e9);
  }
  if (peaks.bf16_tile_flops_per_s > 0) {
    std::printf("; tiles of bf16 %.0f GFLOP/s, of int8 %.0f GOP/s",
                peaks.bf16_tile_flops_per_s / 1e9, peaks.int8_tile_ops_per_s / 1e9);
  }
  std::printf("\n");
}

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") {
      std::printf("%s\nShapes: %s\n", kUsage, ProductShapes().c_str());
      return 0;
    }
    if (!Parse(argv[i], arguments)) {
      std::fprintf(stderr, "kernel_bench: cannot use %s (see --help)\n", argv[i]);
      return 2;
    }
  }
  auto backend = kernels::cpu::CpuBackend::Create(arguments.cpu);
  if (!backend.ok()) {
    std::fprintf(stderr, "kernel_bench: %s\n", std::string(backend.status().message()).c_str());
    return 2;
  }
  const kernels::BackendInfo& info = (*backend)->info();
  const MachinePeaks peaks = MeasurePeaks(info.threads);
  std::printf("%s, %d threads, level %s; %s\n", ProcessorName().c_str(), info.threads,
              info.isa.c_str(),
              !arguments.products                       ? "data in the cache where it fits"
              : arguments.linear.working_set_bytes == 0 ? "weights in the cache"
                                                        : "weights from memory");
  PrintPeaks(peaks);
  const BenchOutcome outcome = arguments.products
                                   ? RunLinearBench(**backend, arguments.linear, peaks)
                                   : RunLayerOpsBench(**backend, arguments.layer, peaks);
  if (outcome.cases == 0) {
    std::fprintf(stderr, "kernel_bench: nothing was measured: no case fits all options\n");
    return 2;
  }
  return outcome.right ? 0 : 1;
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) { return refrain::bench::Main(argc, argv); }
