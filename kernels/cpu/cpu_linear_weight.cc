#include "kernels/cpu/cpu_linear_weight.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/second_copy.h"

namespace refrain::kernels::cpu {
namespace {

// How a slice is packed; nullopt = stays quantised.
std::optional<DenseForm> DenseFormOf(DType dtype, ComputeDType compute) {
  switch (HostPackedAs(dtype, compute)) {
    case DType::kF32:
      return DenseForm::kF32;
    case DType::kF16:
      return DenseForm::kF16;
    case DType::kBF16:
      return DenseForm::kBF16;
    default:
      return std::nullopt;
  }
}

bool HasSecondCopy(Isa isa, DType dtype) {
  const std::vector<DType> types = SecondCopiesOf(isa);
  return std::find(types.begin(), types.end(), dtype) != types.end();
}

}  // namespace

CpuLinearWeight::CpuLinearWeight(std::vector<std::unique_ptr<PackedMatrix>> matrices) {
  assert(!matrices.empty());
  for (std::unique_ptr<PackedMatrix>& matrix : matrices) {
    const Part& part = parts_.emplace_back(Part{n_, tiles_, std::move(matrix)});
    n_ += part.matrix->n();
    tiles_ += part.tiles();
  }
}

size_t CpuLinearWeight::resident_bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.matrix->resident_bytes();
  return bytes;
}

size_t CpuLinearWeight::second_copy_bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.matrix->second_copy_bytes();
  return bytes;
}

void CpuLinearWeight::Multiply(const Activations& x, int64_t row_begin, int64_t row_end,
                               int64_t tile_begin, int64_t tile_end, float* out, int64_t out_stride,
                               bool accumulate, bool reproducible) const {
  for (const Part& part : parts_) {
    const int64_t begin = std::max(tile_begin - part.tile_begin, int64_t{0});
    const int64_t end = std::min(tile_end - part.tile_begin, part.tiles());
    if (begin >= end) continue;
    part.matrix->Multiply(x, row_begin, row_end, begin, end, out + part.row_begin, out_stride,
                          accumulate, reproducible);
  }
}

void CpuLinearWeight::DequantizeRow(int64_t row, float* out) const {
  assert(row >= 0 && row < n_);
  const auto after = std::find_if(parts_.begin(), parts_.end(), [row](const Part& part) {
    return row < part.row_begin + part.matrix->n();
  });
  after->matrix->DequantizeRow(row - after->row_begin, out);
}

absl::StatusOr<std::unique_ptr<CpuLinearWeight>> PackCpuLinear(std::span<const WeightSlice> slices,
                                                               const PackOptions& options, Isa isa,
                                                               Device& device, ThreadPool& pool) {
  if (slices.empty()) return absl::InvalidArgumentError("a weight needs at least one slice");
  const ActivationForm fixed =
      options.compute == ComputeDType::kInt8 ? ActivationForm::kInt8 : ActivationForm::kFixed;
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  for (size_t begin = 0; begin < slices.size();) {
    const WeightSlice& first = slices[begin];
    if (first.cols != slices[0].cols) {
      return absl::InvalidArgumentError(absl::StrCat("slices of one weight have ", slices[0].cols,
                                                     " and ", first.cols, " columns"));
    }
    const std::optional<DenseForm> form = DenseFormOf(first.dtype, options.compute);
    size_t end = begin + 1;
    while (end < slices.size() && DenseFormOf(slices[end].dtype, options.compute) == form &&
           (form.has_value() || slices[end].dtype == first.dtype)) {
      ++end;
    }
    const std::span<const WeightSlice> run = slices.subspan(begin, end - begin);
    absl::StatusOr<std::unique_ptr<PackedMatrix>> matrix =
        form.has_value() ? PackDense(run, *form, isa, device, pool)
                         : PackQuantized(run, fixed, isa, device, pool, options.argmax);
    if (!matrix.ok()) return matrix.status();
    if (options.second_copy && !form.has_value() && fixed == ActivationForm::kFixed &&
        HasSecondCopy(isa, first.dtype)) {
      matrix = AddSecondCopy(*std::move(matrix), run, isa, device, pool);
      if (!matrix.ok()) return matrix.status();
    }
    matrices.push_back(*std::move(matrix));
    begin = end;
  }
  return std::make_unique<CpuLinearWeight>(std::move(matrices));
}

}  // namespace refrain::kernels::cpu
