#ifndef REFRAIN_KERNELS_CUDA_DEVICE_MATRIX_H_
#define REFRAIN_KERNELS_CUDA_DEVICE_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace refrain::kernels::cuda {

// A weight in device memory, rows as in the file but for the order of bytes: the part of every
// block that is a multiple of 16 bytes comes first for all blocks of the row, what is left of each
// block behind it, and both are padded with zeros, so that quants are read in whole words. The
// values are the file's.
//
//   block        main bytes            side bytes
//   f32 f16 bf16 the element
//   q8_0         quants 32             d 2
//   q4_0         nibbles 16            d 2
//   q4_1         nibbles 16            d, m 4
//   q5_0         nibbles 16            d 2, fifth bits 4
//   q5_1         nibbles 16            d, m 4, fifth bits 4
//   q4_k q5_k    the block             -
//   q6_k         all but d 208         d 2
struct DeviceMatrix {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  size_t row_bytes = 0;   // from row to row
  size_t side_bytes = 0;  // from a row's beginning to its side bytes
};

struct BlockParts {
  int main_bytes;
  int side_bytes;
  int main_offset;  // of the main bytes in a file's block; the side bytes are the others, in order
};

constexpr BlockParts PartsOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {32, 2, 2};
    case DType::kQ4_0:
      return {16, 2, 2};
    case DType::kQ4_1:
      return {16, 4, 4};
    case DType::kQ5_0:
      return {16, 6, 6};
    case DType::kQ5_1:
      return {16, 8, 8};
    case DType::kQ6_K:
      return {208, 2, 0};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kF8E4M3:
      break;
  }
  return {Traits(dtype).block_bytes, 0, 0};
}

// Sizes of a matrix; `data` is not set. cols is a whole number of blocks.
constexpr DeviceMatrix LayOut(DType dtype, int64_t rows, int64_t cols) {
  const int64_t blocks = cols / Traits(dtype).block_elements;
  const BlockParts parts = PartsOf(dtype);
  // Eight elements of any type are within 32 bytes: a row is read in eights beyond its end.
  const size_t side = (static_cast<size_t>(blocks * parts.main_bytes) + 31) / 32 * 32;
  const size_t bytes = (side + static_cast<size_t>(blocks * parts.side_bytes) + 15) / 16 * 16;
  return {dtype, nullptr, rows, cols, bytes, side};
}

// Writes one row [cols] of a file into a row of `matrix` (row_bytes bytes).
void RepackRow(const DeviceMatrix& matrix, const std::byte* file_row, std::byte* to);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_DEVICE_MATRIX_H_
