#include "kernels/cpu/second_copy.h"

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/dense_matrix.h"
#include "kernels/reference/dequantize.h"

namespace refrain::kernels::cpu {
namespace {

// When the copy multiplies (kernel_bench --second-copy).
struct Rule {
  int64_t least_rows;
  // Beside rows of context, of which the blocks need one digit and half of the work.
  bool mixes;
};

Rule RuleOf(Isa isa) {
  if (isa == Isa::kPortable) return {.least_rows = 4, .mixes = true};
  return {.least_rows = 16, .mixes = false};
}

class TwoForms final : public PackedMatrix {
 public:
  TwoForms(std::unique_ptr<PackedMatrix> first, std::unique_ptr<PackedMatrix> second, Rule rule)
      : first_(std::move(first)), second_(std::move(second)), rule_(rule) {}

  int64_t n() const override { return first_->n(); }
  int64_t k() const override { return first_->k(); }
  size_t resident_bytes() const override {
    return first_->resident_bytes() + second_->resident_bytes();
  }

  ActivationForm form(const ProductKind& kind) const override { return For(kind).form(kind); }

  void Multiply(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                int64_t tile_end, float* out, int64_t out_stride, bool accumulate,
                bool reproducible) const override {
    const ProductKind kind = {x.rows, reproducible, x.mixed.coarse_before != nullptr};
    For(kind).Multiply(x, row_begin, row_end, tile_begin, tile_end, out, out_stride, accumulate,
                       reproducible);
  }

  const ProductBounds* bounds() const override { return first_->bounds(); }
  ActivationForm rough_form(int64_t rows) const override { return first_->rough_form(rows); }
  void MultiplyRough(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                     int64_t tile_end, float* out, int64_t out_stride) const override {
    first_->MultiplyRough(x, row_begin, row_end, tile_begin, tile_end, out, out_stride);
  }

  void DequantizeRow(int64_t row, float* out) const override { first_->DequantizeRow(row, out); }

 private:
  const PackedMatrix& For(const ProductKind& kind) const {
    const bool second =
        !kind.reproducible && kind.rows >= rule_.least_rows && (rule_.mixes || !kind.mixes);
    return second ? *second_ : *first_;
  }

  const std::unique_ptr<PackedMatrix> first_, second_;
  const Rule rule_;
};

// Whether no weight becomes an infinity in f16.
bool FitsF16(const WeightSlice& slice, ThreadPool& pool) {
  constexpr float kLargest = 65504;
  const size_t row_bytes = *RowBytes(slice.dtype, slice.cols);
  std::atomic<bool> fits = true;
  pool.ParallelFor(slice.rows, /*grain=*/4 * kTileN, [&](int64_t begin, int64_t end) {
    std::vector<float> values(slice.cols);
    for (int64_t row = begin; row < end && fits; ++row) {
      kernels::DequantizeRow(slice.dtype, slice.data + row * row_bytes, slice.cols, values.data());
      bool all = true;  // NaN does not
      for (const float value : values) all &= std::abs(value) <= kLargest;
      if (!all) fits = false;
    }
  });
  return fits;
}

}  // namespace

std::vector<DType> SecondCopiesOf(Isa isa) {
  if (isa >= Isa::kAvx512Vnni) return {};
  if (isa >= Isa::kAvx2) return {DType::kQ8_0};
  return {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
          DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> AddSecondCopy(std::unique_ptr<PackedMatrix> first,
                                                            std::span<const WeightSlice> slices,
                                                            Isa isa, Device& device,
                                                            ThreadPool& pool) {
  // All that are stored, were some rows left out by the order: the others are checked by loading.
  for (const WeightSlice& slice : slices) {
    if (!FitsF16(slice, pool)) return first;
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> second =
      PackDense(slices, DenseForm::kF16, isa, device, pool);
  if (!second.ok()) return second.status();
  return std::make_unique<TwoForms>(std::move(first), *std::move(second), RuleOf(isa));
}

}  // namespace refrain::kernels::cpu
