#ifndef REFRAIN_KERNELS_CUDA_ROUND_ROWS_H_
#define REFRAIN_KERNELS_CUDA_ROUND_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/dtype.h"

namespace refrain::kernels::cuda {

// Activations as 16-bit elements, as kTile of gemm.h rounds them: to f16 (beyond its range to the
// largest f16) or to bf16. Zeros from cols to out_stride, which is a multiple of 8.
struct RoundRowsLaunch {
  DType dtype = DType::kF16;  // kF16 or kBF16
  int64_t rows = 0, cols = 0;
  DeviceRows x;
  std::byte* out = nullptr;  // [rows, out_stride], on a 16-byte border
  int64_t out_stride = 0;    // elements
  friend bool operator==(const RoundRowsLaunch&, const RoundRowsLaunch&) = default;
};
void LaunchRoundRows(Stream& stream, const RoundRowsLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ROUND_ROWS_H_
