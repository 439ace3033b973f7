#ifndef REFRAIN_KERNELS_TENSOR_VIEW_H_
#define REFRAIN_KERNELS_TENSOR_VIEW_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace refrain::kernels {

// A borrowed matrix in a back end's memory: [rows, cols], row r begins at data + r * stride
// elements. Owns nothing; the dtype is an unquantised one.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between the beginnings of two rows, >= cols; 0: one row for all

  // The row as floats; the view must hold f32.
  float* F32Row(int64_t row) const {
    assert(dtype == DType::kF32 && row >= 0 && row < rows);
    return static_cast<float*>(data) + row * stride;
  }

  // The first `count` rows.
  TensorView Rows(int64_t count) const {
    assert(count >= 0 && count <= rows);
    return {data, dtype, count, cols, stride};
  }

  // Rows [begin, begin + count).
  TensorView RowRange(int64_t begin, int64_t count) const {
    assert(begin >= 0 && count >= 0 && begin + count <= rows);
    auto* first = static_cast<std::byte*>(data) + begin * stride * Traits(dtype).block_bytes;
    return {first, dtype, count, cols, stride};
  }

  // Columns [begin, begin + count) of every row.
  TensorView Cols(int64_t begin, int64_t count) const {
    assert(begin >= 0 && begin + count <= cols);
    auto* first = static_cast<std::byte*>(data) + begin * Traits(dtype).block_bytes;
    return {first, dtype, rows, count, stride};
  }
};

inline TensorView F32View(float* data, int64_t rows, int64_t cols) {
  return {data, DType::kF32, rows, cols, cols};
}

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_TENSOR_VIEW_H_
