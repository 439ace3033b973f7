#include "kernels/cuda/cuda_linear_weight.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/widen_weights.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "kernels/weight_slices.h"

namespace refrain::kernels::cuda {
namespace {

// Writes source rows into rows of a device matrix on the host.
class RowWriter {
 public:
  explicit RowWriter(const DeviceMatrix& matrix) : matrix_(matrix), floats_(matrix.cols) {}

  void Write(const WeightSlice& slice, int64_t row, std::byte* to) {
    const std::byte* const from = slice.data + row * *RowBytes(slice.dtype, slice.cols);
    if (slice.dtype == matrix_.dtype) return RepackRow(matrix_, from, to);
    DequantizeRow(slice.dtype, from, slice.cols, floats_.data());
    std::memset(to, 0, matrix_.row_bytes);
    for (int64_t i = 0; i < slice.cols; ++i) {
      const uint16_t bits = F32ToBf16(floats_[i]);
      std::memcpy(to + 2 * i, &bits, sizeof(bits));
    }
  }

 private:
  DeviceMatrix matrix_;
  std::vector<float> floats_;
};

absl::StatusOr<CudaLinearWeight::Part> PackPart(std::span<const WeightSlice> slices, DType dtype,
                                                int64_t row_begin, Device& device) {
  int64_t rows = 0;
  for (const WeightSlice& slice : slices) rows += slice.rows;
  CudaLinearWeight::Part part{row_begin, LayOut(dtype, rows, slices.front().cols), {}};
  const size_t row_bytes = part.matrix.row_bytes;
  absl::StatusOr<DeviceBuffer> buffer =
      device.Allocate(static_cast<size_t>(rows) * row_bytes, true);
  if (!buffer.ok()) return buffer.status();
  part.buffer = *std::move(buffer);
  part.matrix.data = part.buffer.data();

  constexpr size_t kStagedBytes = size_t{8} << 20;
  const int64_t staged_rows = std::max<int64_t>(1, kStagedBytes / row_bytes);
  std::vector<std::byte> staged(static_cast<size_t>(staged_rows) * row_bytes);
  RowWriter writer(part.matrix);
  std::byte* to = part.buffer.data();
  for (const WeightSlice& slice : slices) {
    for (int64_t begin = 0; begin < slice.rows; begin += staged_rows) {
      const int64_t end = std::min(slice.rows, begin + staged_rows);
      for (int64_t i = begin; i < end; ++i) {
        writer.Write(slice, slice.row_order.empty() ? i : slice.row_order[i],
                     staged.data() + static_cast<size_t>(i - begin) * row_bytes);
      }
      const size_t bytes = static_cast<size_t>(end - begin) * row_bytes;
      absl::Status status = device.CopyFromHost(to, staged.data(), bytes);
      if (!status.ok()) return status;
      to += bytes;
    }
  }
  return part;
}

}  // namespace

CudaLinearWeight::CudaLinearWeight(std::vector<Part> parts, bool exact)
    : parts_(std::move(parts)), exact_(exact) {
  for (const Part& part : parts_) n_ += part.matrix.rows;
}

size_t CudaLinearWeight::resident_bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.buffer.bytes() + part.second_buffer.bytes();
  return bytes;
}

size_t CudaLinearWeight::second_copy_bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.second_buffer.bytes();
  return bytes;
}

absl::Status CudaLinearWeight::AddSecondCopies(Stream& stream, Device& device) {
  for (Part& part : parts_) {
    if (!Traits(part.matrix.dtype).quantized) continue;
    DeviceMatrix second = LayOut(DType::kF16, part.matrix.rows, part.matrix.cols);
    // Whole blocks of 32: rows without padding, as they are widened.
    assert(second.row_bytes == static_cast<size_t>(second.cols) * sizeof(uint16_t));
    absl::StatusOr<DeviceBuffer> buffer =
        device.Allocate(static_cast<size_t>(second.rows) * second.row_bytes, true);
    if (!buffer.ok()) return buffer.status();
    part.second_buffer = *std::move(buffer);
    LaunchWidenWeights(stream, {part.matrix, part.second_buffer.data()});
    if (absl::Status status = StatusOfLaunches(stream); !status.ok()) return status;
    second.data = part.second_buffer.data();
    part.second = second;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaLinearWeight>> PackCudaLinear(
    std::span<const WeightSlice> slices, const PackOptions& options, Device& device) {
  if (absl::Status status = CheckSlices(slices); !status.ok()) return status;
  const auto dtype_of = [&](const WeightSlice& slice) {
    return PackedAs(slice.dtype, options.compute);
  };
  std::vector<CudaLinearWeight::Part> parts;
  int64_t row_begin = 0;
  while (!slices.empty()) {
    const DType dtype = dtype_of(slices.front());
    size_t count = 1;
    while (count < slices.size() && dtype_of(slices[count]) == dtype) ++count;
    absl::StatusOr<CudaLinearWeight::Part> part =
        PackPart(slices.first(count), dtype, row_begin, device);
    if (!part.ok()) return part.status();
    row_begin += part->matrix.rows;
    parts.push_back(*std::move(part));
    slices = slices.subspan(count);
  }
  return std::make_unique<CudaLinearWeight>(std::move(parts),
                                            options.compute == ComputeDType::kF32);
}

}  // namespace refrain::kernels::cuda
