#include "tools/bench/linear_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <span>

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

using Bytes = std::vector<std::byte>;

double Product(DType dtype, const Bytes& data, int64_t n, std::span<const float> x) {
  const auto k = static_cast<int64_t>(x.size());
  std::vector<float> w(x.size());
  kernels::DequantizeRow(dtype, data.data() + n * *kernels::RowBytes(dtype, k), k, w.data());
  return std::inner_product(w.begin(), w.end(), x.begin(), 0.0);
}

// The largest error of a sample of outputs, relative to the root mean square of the true ones.
// `data`: of the weight, or of gate and up.
double SampledError(DType dtype, const std::vector<Bytes>& data, const Shape& shape,
                    const std::vector<float>& x, int64_t rows, const std::vector<float>& out) {
  double worst = 0, squares = 0;
  int64_t samples = 0;
  for (int64_t n = 0; n < shape.n; n += std::max<int64_t>(1, shape.n / 37)) {
    for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) {
      const std::span<const float> in(x.data() + row * shape.k, shape.k);
      double want = Product(dtype, data[0], n, in);
      if (data.size() > 1) want *= Product(dtype, data[1], n, in) / (1 + std::exp(-want));
      worst = std::max(worst, std::abs(want - out[row * shape.n + n]));
      squares += want * want;
      ++samples;
    }
  }
  return worst / std::sqrt(squares / samples);
}

// The operation that is measured, with the weight at `first`, of gate_up with the one behind it,
// too.
void Call(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
          const std::vector<std::unique_ptr<LinearWeight>>& weights, size_t first,
          const kernels::TensorView& x, const kernels::TensorView& out) {
  const LinearWeight* weight = weights[first].get();
  if (options.gate_up) {
    backend.GateUp({weight, weights[first + 1].get(), x, out});
  } else {
    backend.Linear({weight, x, out});
  }
}

bool RunShape(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
              const MachinePeaks& peaks, DType dtype, const Shape& shape,
              const std::vector<int64_t>& all_rows) {
  const size_t matrices = options.gate_up ? 2 : 1;
  std::vector<Bytes> data;
  for (size_t i = 0; i < matrices; ++i) {
    data.push_back(RandomWeight(dtype, shape.n, shape.k, static_cast<uint32_t>(i + 1)));
  }
  const auto compute = options.int8 ? kernels::ComputeDType::kInt8 : kernels::ComputeDType::kAuto;
  std::vector<std::unique_ptr<LinearWeight>> weights;
  size_t bytes = 0;
  do {
    const Bytes& source = data[weights.size() % matrices];
    const WeightSlice slice{dtype, shape.n, shape.k, source.data(), {}};
    auto packed = backend.PackLinear({&slice, 1}, {.compute = compute});
    if (!packed.ok()) {
      std::printf("cannot pack: %s\n", std::string(packed.status().message()).c_str());
      return false;
    }
    bytes += (*packed)->resident_bytes();
    weights.push_back(*std::move(packed));
  } while (bytes < options.working_set_bytes || weights.size() % matrices != 0);

  bool correct = true;
  for (const int64_t rows : all_rows) {
    std::vector<float> x(rows * shape.k), out(rows * shape.n);
    std::minstd_rand random(2);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random);
    const auto x_view = F32View(x.data(), rows, shape.k);
    const auto out_view = F32View(out.data(), rows, shape.n);
    Call(backend, options, weights, 0, x_view, out_view);
    const double error = SampledError(dtype, data, shape, x, rows, out);
    const bool right = error < (!kernels::Traits(dtype).quantized ? 0.02
                                : options.int8                    ? 0.05
                                                                  : 1e-3);
    correct &= right;

    // Goes round in the weights.
    size_t next = 0;
    const CallTiming timing = TimeCalls(options.min_seconds, [&] {
      Call(backend, options, weights, next, x_view, out_view);
      next = (next + matrices) % weights.size();
    });
    const size_t calls_per_round = weights.size() / matrices;
    const double byte_rate =
        static_cast<double>(bytes) / static_cast<double>(calls_per_round) / timing.best;
    const double op_rate =
        2.0 * static_cast<double>(matrices) * rows * shape.n * shape.k / timing.best;
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
