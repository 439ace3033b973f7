#ifndef REFRAIN_KERNELS_CPU_DENSE_PRODUCT_H_
#define REFRAIN_KERNELS_CPU_DENSE_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/dense_kernels.h"

namespace refrain::kernels::cpu {

// How a product reads its packed panels.
enum class DenseRead : uint8_t {
  kF32,
  kF16,
  kBF16Widened,  // x is f32
  kBF16Dot,      // x is bf16
};

// X W^T for a range of rows and of panels of W; every pointer is to the range's first row or panel.
struct DenseProduct {
  // sizes
  int64_t rows = 0;
  int64_t columns = 0;  // the last panel may be part-full
  int64_t steps = 0;    // 4-byte steps of a row of x: k, or packed k / 2 for kBF16Dot
  bool accumulate = false;
  DenseRead read = DenseRead::kF32;
  // inputs
  const void* x = nullptr;            // [rows, steps]
  int64_t x_stride = 0;               // in steps
  const std::byte* panels = nullptr;  // [columns/16] panels
  int64_t panel_bytes = 0;
  // output
  float* out = nullptr;  // [rows, columns]
  int64_t out_stride = 0;
};

// Cuts the product into register tiles: blocks of rows whose packed x stays in the L2 cache, blocks
// of k whose panel pair stays in L1 or L2, sums carried from one block of k to the next. A pure
// function of its arguments, on the calling thread, with its scratch on the stack.
void MultiplyDense(const DenseKernels& kernels, const DenseProduct& product);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_DENSE_PRODUCT_H_
