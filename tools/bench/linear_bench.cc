#include "tools/bench/linear_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "kernels/reference/dequantize.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/random_weight.h"

namespace refrain::bench {
namespace {

using kernels::DType;
using kernels::DTypeTraits;
using kernels::F32View;
using kernels::LinearWeight;
using kernels::WeightSlice;

struct Shape {
  int64_t n, k;
  std::string name() const { return std::to_string(n) + "x" + std::to_string(k); }
};

// SmolLM2-135M's layers (q, k and v stacked; o; gate or up; down) and head, and squares.
constexpr Shape kShapes[] = {{960, 576},   {576, 576},   {1536, 576}, {576, 1536},
                             {49152, 576}, {2048, 2048}, {4096, 4096}};

template <typename T>
bool Wanted(const std::vector<T>& filter, const T& value) {
  return filter.empty() || std::find(filter.begin(), filter.end(), value) != filter.end();
}

// The largest error of a sample of outputs, relative to the root mean square of the true ones.
double SampledError(DType dtype, const std::vector<std::byte>& data, const Shape& shape,
                    const std::vector<float>& x, int64_t rows, const std::vector<float>& out) {
  std::vector<float> w(shape.k);
  double worst = 0, squares = 0;
  int64_t samples = 0;
  for (int64_t n = 0; n < shape.n; n += std::max<int64_t>(1, shape.n / 37)) {
    kernels::DequantizeRow(dtype, data.data() + n * *kernels::RowBytes(dtype, shape.k), shape.k,
                           w.data());
    for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) {
      double want = 0;
      for (int64_t k = 0; k < shape.k; ++k) {
        want += static_cast<double>(w[k]) * x[row * shape.k + k];
      }
      worst = std::max(worst, std::abs(want - out[row * shape.n + n]));
      squares += want * want;
      ++samples;
    }
  }
  return worst / std::sqrt(squares / samples);
}

struct Case {
  DType dtype;
  Shape shape;
  int64_t rows;
};

// Times calls that go round in the weights.
CallTiming Time(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
                const std::vector<std::unique_ptr<LinearWeight>>& weights, std::vector<float>& x,
                std::vector<float>& out, const Case& c) {
  const auto x_view = F32View(x.data(), c.rows, c.shape.k);
  const auto out_view = F32View(out.data(), c.rows, c.shape.n);
  size_t next = 0;
  return TimeCalls(options.min_seconds, [&] {
    const LinearWeight* weight = weights[next].get();
    if (options.gate_up) {
      backend.GateUp({weight, weights[next + 1].get(), x_view, out_view});
    } else {
      backend.Linear({weight, x_view, out_view});
    }
    next = (next + (options.gate_up ? 2 : 1)) % weights.size();
  });
}

bool RunShape(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
              const MachinePeaks& peaks, DType dtype, const Shape& shape,
              const std::vector<int64_t>& all_rows) {
  const std::vector<std::byte> data = RandomWeight(dtype, shape.n, shape.k, 1);
  const WeightSlice slice{dtype, shape.n, shape.k, data.data(), {}};
  const auto compute = options.int8 ? kernels::ComputeDType::kInt8 : kernels::ComputeDType::kAuto;
  std::vector<std::unique_ptr<LinearWeight>> weights;
  size_t bytes = 0;
  do {
    auto packed = backend.PackLinear({&slice, 1}, {.compute = compute});
    if (!packed.ok()) {
      std::printf("cannot pack: %s\n", std::string(packed.status().message()).c_str());
      return false;
    }
    bytes += (*packed)->resident_bytes();
    weights.push_back(*std::move(packed));
  } while (bytes < options.working_set_bytes || weights.size() < (options.gate_up ? 2 : 1) ||
           (options.gate_up && weights.size() % 2 != 0));

  bool correct = true;
  for (const int64_t rows : all_rows) {
    std::vector<float> x(rows * shape.k), out(rows * shape.n);
    std::minstd_rand random(2);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random);
    backend.Linear(
        {weights[0].get(), F32View(x.data(), rows, shape.k), F32View(out.data(), rows, shape.n)});
    const double error = SampledError(dtype, data, shape, x, rows, out);
    const bool right = error < (!kernels::Traits(dtype).quantized ? 0.02
                                : options.int8                    ? 0.05
                                                                  : 1e-3);
    correct &= right;

    const Case c{dtype, shape, rows};
    const CallTiming timing = Time(backend, options, weights, x, out, c);
    const int matrices = options.gate_up ? 2 : 1;
    const double byte_rate =
        matrices * static_cast<double>(bytes) / static_cast<double>(weights.size()) / timing.best;
    const double op_rate = matrices * 2.0 * rows * shape.n * shape.k / timing.best;
    const bool cached = options.working_set_bytes == 0;
    const double byte_peak = cached ? peaks.cached_read_bytes_per_s : peaks.read_bytes_per_s;
    const double op_peak =
        kernels::Traits(dtype).quantized ? peaks.int8_ops_per_s : peaks.fma_flops_per_s;
    std::printf("%-6s %11s %5lld %10.2f %10.2f us %7.2f GB/s %4.0f %% %8.1f GOP/s %4.0f %%  %s\n",
                std::string(kernels::Traits(dtype).name).c_str(), shape.name().c_str(),
                static_cast<long long>(rows), timing.median * 1e6, timing.best * 1e6,
                byte_rate / 1e9, byte_peak > 0 ? 100 * byte_rate / byte_peak : 0, op_rate / 1e9,
                op_peak > 0 ? 100 * op_rate / op_peak : 0, right ? "ok" : "WRONG");
    std::fflush(stdout);
  }
  return correct;
}

}  // namespace

bool RunLinearBench(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
                    const MachinePeaks& peaks) {
  std::printf("%-6s %11s %5s %10s %13s %19s %22s\n", "type", "n x k", "rows", "median", "best",
              "weights (best)", "products (best)");
  const std::vector<int64_t> rows =
      options.rows.empty() ? std::vector<int64_t>{1, 4, 8, 32, 512} : options.rows;
  bool correct = true;
  for (const DTypeTraits& traits : kernels::kDTypes) {
    if (!Wanted(options.dtypes, std::string(traits.name))) continue;
    for (const Shape& shape : kShapes) {
      if (!Wanted(options.shapes, shape.name()) || shape.k % traits.block_elements != 0) continue;
      correct &= RunShape(backend, options, peaks, traits.dtype, shape, rows);
    }
  }
  return correct;
}

}  // namespace refrain::bench
