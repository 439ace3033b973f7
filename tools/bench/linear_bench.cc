#include "tools/bench/linear_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include "kernels/cpu/isa.h"
#include "kernels/reference/dequantize.h"
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
constexpr Shape kShapes[] = {{960, 576},   {576, 576},   {1536, 576},  {576, 1536}, {49152, 576},
                             {2048, 2048}, {4096, 4096}, {8192, 2048}, {2048, 8192}};

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

// Some of the rows that are coarse, or of those that are not: `wanted` is 1 or 0.
std::vector<int64_t> SampledRows(const std::vector<uint8_t>& is_coarse, uint8_t wanted) {
  std::vector<int64_t> of_kind, sample;
  for (size_t row = 0; row < is_coarse.size(); ++row) {
    if (is_coarse[row] == wanted) of_kind.push_back(static_cast<int64_t>(row));
  }
  const size_t step = std::max<size_t>(1, of_kind.size() / 5);
  for (size_t i = 0; i < of_kind.size(); i += step) sample.push_back(of_kind[i]);
  return sample;
}

// One type and shape: the weights, and what is measured with any number of rows.
class ProductBench {
 public:
  ProductBench(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options, DType dtype,
               const Shape& shape)
      : backend_(backend), options_(options), dtype_(dtype), shape_(shape) {
    for (size_t i = 0; i < Matrices(); ++i) {
      data_.push_back(RandomWeight(dtype, shape.n, shape.k, static_cast<uint32_t>(i + 1)));
    }
  }

  absl::Status Pack();
  // Prints a line; false if the result was wrong.
  bool Run(int64_t rows, const MachinePeaks& peaks);

 private:
  size_t Matrices() const { return options_.op == ProductOp::kGateUp ? 2 : 1; }
  bool HasCoarse() const {
    return options_.coarse != CoarseRows::kNone && options_.op != ProductOp::kArgMax;
  }
  bool Quantized() const { return kernels::Traits(dtype_).quantized; }
  void FillRows(int64_t rows);
  // The operation, with the weight at `first`, of gate_up with the one behind it, too.
  void Call(size_t first);
  bool Right() const;
  double SampledError(const std::vector<int64_t>& rows) const;
  bool GreatestAreRight() const;
  void Print(const CallTiming& timing, const MachinePeaks& peaks, bool right) const;

  kernels::cpu::CpuBackend& backend_;
  const LinearBenchOptions& options_;
  const DType dtype_;
  const Shape shape_;
  std::vector<Bytes> data_;  // of the weight, or of gate and up
  std::vector<std::unique_ptr<LinearWeight>> weights_;
  size_t bytes_ = 0;  // of all weights
  // Of one number of rows.
  int64_t rows_ = 0;
  std::vector<float> x_, out_;      // [rows, k], [rows, n]
  std::vector<uint8_t> is_coarse_;  // [rows]
  std::vector<int32_t> greatest_;   // [rows]
};

absl::Status ProductBench::Pack() {
  const kernels::PackOptions pack = {
      .compute = options_.int8 ? kernels::ComputeDType::kInt8 : kernels::ComputeDType::kAuto,
      .argmax = options_.op == ProductOp::kArgMax,
      .second_copy = options_.second_copy};
  do {
    const Bytes& source = data_[weights_.size() % Matrices()];
    const WeightSlice slice{dtype_, shape_.n, shape_.k, source.data(), {}};
    auto packed = backend_.PackLinear({&slice, 1}, pack);
    if (!packed.ok()) return packed.status();
    bytes_ += (*packed)->resident_bytes();
    weights_.push_back(*std::move(packed));
  } while (bytes_ < options_.working_set_bytes || weights_.size() % Matrices() != 0);
  return absl::OkStatus();
}

void ProductBench::FillRows(int64_t rows) {
  rows_ = rows;
  x_.resize(rows * shape_.k);
  out_.assign(rows * shape_.n, NAN);
  greatest_.assign(rows, 0);
  is_coarse_.assign(rows, HasCoarse() ? 1 : 0);
  if (options_.coarse == CoarseRows::kMost) {
    for (int64_t row = 7; row < rows; row += 8) is_coarse_[row] = 0;
  }
  std::minstd_rand random(2);
  std::normal_distribution<float> normal;
  for (float& v : x_) v = normal(random);
}

void ProductBench::Call(size_t first) {
  const auto x = F32View(x_.data(), rows_, shape_.k);
  const auto out = F32View(out_.data(), rows_, shape_.n);
  const LinearWeight* const weight = weights_[first].get();
  std::span<const uint8_t> coarse;
  if (HasCoarse()) coarse = is_coarse_;
  switch (options_.op) {
    case ProductOp::kLinear:
      backend_.Linear({weight, x, out, false, false, coarse});
      break;
    case ProductOp::kGateUp:
      backend_.GateUp({weight, weights_[first + 1].get(), x, out, false, coarse});
      break;
    case ProductOp::kArgMax:
      backend_.LinearArgMax({weight, x, greatest_});
      break;
  }
}

bool ProductBench::Right() const {
  if (options_.op == ProductOp::kArgMax) return GreatestAreRight();
  const double of_8_bits = options_.op == ProductOp::kGateUp ? 0.1 : 0.05;  // errors of two add
  const double exact = !Quantized() ? 0.02 : options_.int8 ? of_8_bits : 1e-3;
  const double rounded = std::max(exact, of_8_bits);
  return SampledError(SampledRows(is_coarse_, 0)) < exact &&
         SampledError(SampledRows(is_coarse_, 1)) < rounded;
}

// The largest error of a sample of these rows' outputs, relative to the root mean square of the
// true ones; 0 of no rows.
double ProductBench::SampledError(const std::vector<int64_t>& rows) const {
  if (rows.empty()) return 0;
  double worst = 0, squares = 0;
  int64_t samples = 0;
  for (int64_t n = 0; n < shape_.n; n += std::max<int64_t>(1, shape_.n / 37)) {
    for (const int64_t row : rows) {
      const std::span<const float> in(x_.data() + row * shape_.k, shape_.k);
      double want = Product(dtype_, data_[0], n, in);
      if (data_.size() > 1) want *= Product(dtype_, data_[1], n, in) / (1 + std::exp(-want));
      const double error = std::abs(want - out_[row * shape_.n + n]);
      if (std::isnan(error)) return INFINITY;
      worst = std::max(worst, error);
      squares += want * want;
      ++samples;
    }
  }
  return worst / std::sqrt(squares / static_cast<double>(samples));
}

// Of a sample of rows: whether what was found is the greatest of all products, as far as those are
// exact. Rows may be left undecided; of eight or more not all.
bool ProductBench::GreatestAreRight() const {
  const auto undecided = [](int32_t found) { return found < 0; };
  if (rows_ >= 8 && std::all_of(greatest_.begin(), greatest_.end(), undecided)) return false;
  for (const int64_t row : SampledRows(is_coarse_, 0)) {
    const int32_t found = greatest_[row];
    if (undecided(found)) continue;
    if (found >= shape_.n) return false;
    const std::span<const float> in(x_.data() + row * shape_.k, shape_.k);
    double most = -INFINITY, squares = 0, of_found = 0;
    for (int64_t n = 0; n < shape_.n; ++n) {
      const double product = Product(dtype_, data_[0], n, in);
      most = std::max(most, product);
      squares += product * product;
      if (n == found) of_found = product;
    }
    const double size = std::sqrt(squares / static_cast<double>(shape_.n));
    if (most - of_found > 2e-3 * size) return false;
  }
  return true;
}

void ProductBench::Print(const CallTiming& timing, const MachinePeaks& peaks, bool right) const {
  const size_t calls_per_round = weights_.size() / Matrices();
  const double byte_rate =
      static_cast<double>(bytes_) / static_cast<double>(calls_per_round) / timing.best;
  const double op_rate = 2.0 * static_cast<double>(Matrices()) * static_cast<double>(rows_) *
                         static_cast<double>(shape_.n * shape_.k) / timing.best;
  const bool cached = options_.working_set_bytes == 0;
  const double byte_peak = cached ? peaks.cached_read_bytes_per_s : peaks.read_bytes_per_s;
  const double op_peak =
      ProductPeak(peaks, *kernels::cpu::ResolveIsa(backend_.info().isa), dtype_, rows_);
  std::printf("%-6s %11s %5lld %10.2f %10.2f us %7.2f GB/s %4.0f %% %8.1f GOP/s %4.0f %%  %s",
              std::string(kernels::Traits(dtype_).name).c_str(), shape_.name().c_str(),
              static_cast<long long>(rows_), timing.median * 1e6, timing.best * 1e6,
              byte_rate / 1e9, byte_peak > 0 ? 100 * byte_rate / byte_peak : 0, op_rate / 1e9,
              op_peak > 0 ? 100 * op_rate / op_peak : 0, right ? "ok" : "WRONG");
  if (options_.op == ProductOp::kArgMax) {
    const auto decided =
        std::count_if(greatest_.begin(), greatest_.end(), [](int32_t found) { return found >= 0; });
    std::printf(", %lld decided", static_cast<long long>(decided));
  }
  std::printf("\n");
  std::fflush(stdout);
}

bool ProductBench::Run(int64_t rows, const MachinePeaks& peaks) {
  FillRows(rows);
  Call(0);
  const bool right = Right();
  size_t next = 0;  // goes round in the weights
  const CallTiming timing = TimeCalls(options_.min_seconds, [&] {
    Call(next);
    next = (next + Matrices()) % weights_.size();
  });
  Print(timing, peaks, right);
  return right;
}

}  // namespace

bool IsProductShape(std::string_view name) {
  return std::ranges::any_of(kShapes, [&](const Shape& shape) { return shape.name() == name; });
}

std::string ProductShapes() {
  std::string names;
  for (const Shape& shape : kShapes) names += (names.empty() ? "" : ",") + shape.name();
  return names;
}

BenchOutcome RunLinearBench(kernels::cpu::CpuBackend& backend, const LinearBenchOptions& options,
                            const MachinePeaks& peaks) {
  std::printf("%-6s %11s %5s %10s %13s %19s %22s\n", "type", "n x k", "rows", "median", "best",
              "weights (best)", "products (best)");
  const std::vector<int64_t> rows =
      options.rows.empty() ? std::vector<int64_t>{1, 4, 8, 32, 512} : options.rows;
  BenchOutcome outcome;
  for (const DTypeTraits& traits : kernels::kDTypes) {
    if (!Wanted(options.dtypes, std::string(traits.name))) continue;
    if (options.op == ProductOp::kArgMax && !traits.quantized) continue;  // leaves all undecided
    for (const Shape& shape : kShapes) {
      if (!Wanted(options.shapes, shape.name()) || shape.k % traits.block_elements != 0) continue;
      ProductBench bench(backend, options, traits.dtype, shape);
      if (const absl::Status status = bench.Pack(); !status.ok()) {
        std::printf("cannot pack: %s\n", std::string(status.message()).c_str());
        outcome.Add(false);
        return outcome;
      }
      for (const int64_t count : rows) outcome.Add(bench.Run(count, peaks));
    }
  }
  return outcome;
}

}  // namespace refrain::bench
