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

// From so many rows on the copy multiplies (kernel_bench --second-copy).
constexpr int64_t kLeastRows = 4;

class TwoForms final : public PackedMatrix {
 public:
  TwoForms(std::unique_ptr<PackedMatrix> first, std::unique_ptr<PackedMatrix> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  int64_t n() const override { return first_->n(); }
  int64_t k() const override { return first_->k(); }
  size_t resident_bytes() const override {
    return first_->resident_bytes() + second_->resident_bytes();
  }
  size_t second_copy_bytes() const override { return second_->resident_bytes(); }

  ActivationForm form(const ProductKind& kind) const override { return For(kind).form(kind); }
  bool reads_words(const ProductKind& kind) const override { return For(kind).reads_words(kind); }

  void Multiply(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                int64_t tile_end, float* out, int64_t out_stride, bool accumulate,
                bool reproducible) const override {
    For({x.rows, reproducible})
        .Multiply(x, row_begin, row_end, tile_begin, tile_end, out, out_stride, accumulate,
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
    const bool second = !kind.reproducible && kind.rows >= kLeastRows;
    return second ? *second_ : *first_;
  }

  const std::unique_ptr<PackedMatrix> first_, second_;
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
  if (isa >= Isa::kAvx2) return {};
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
  return std::make_unique<TwoForms>(std::move(first), *std::move(second));
}

}  // namespace refrain::kernels::cpu
