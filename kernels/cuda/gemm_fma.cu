#include <algorithm>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/load_weights.h"

namespace refrain::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarps = 4;

// Warp w of block b has row kWarps * b + w of W and rows [kRows * blockIdx.y, + kRows) of x. Lane l
// sums elements 8 l to 8 l + 7 of every 256, then the lanes' sums are added in a tree: one order
// for every kRows.
template <DType kDType, int kRows>
__global__ void __launch_bounds__(32 * kWarps) FmaGemm(GemmLaunch args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t n = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (n >= args.weight.rows) return;  // of the whole warp
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const int64_t k_end = args.weight.cols;
  const std::byte* const w = args.weight.data + n * args.weight.row_bytes;
  float sums[kRows] = {};
  for (int64_t k = 8 * lane; k < k_end; k += 256) {
    float weights[8];
    LoadWeights8<kDType>(w, w + args.weight.side_bytes, k, weights);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r >= args.rows) break;
      const float* const x = args.x.data + (first_row + r) * args.x.stride + k;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (k + i < k_end) sums[r] = fmaf(x[i], weights[i], sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      sums[r] += __shfl_xor_sync(kAllLanes, sums[r], lanes);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (lane != r || first_row + r >= args.rows) continue;
    float& out = args.out.data[(first_row + r) * args.out.stride + n];
    out = args.accumulate ? out + sums[r] : sums[r];
  }
}

template <DType kDType, int kRows>
void LaunchRows(Stream& stream, const GemmLaunch& args) {
  const auto blocks = static_cast<unsigned>((args.weight.rows + kWarps - 1) / kWarps);
  // As many rows as a grid has, one launch after the other.
  constexpr int64_t kMostRows = int64_t{65535} * kRows;
  for (int64_t row = 0; row < args.rows; row += kMostRows) {
    GemmLaunch part = args;
    part.x.data += row * args.x.stride;
    part.out.data += row * args.out.stride;
    part.rows = std::min(kMostRows, args.rows - row);
    const auto row_blocks = static_cast<unsigned>((part.rows + kRows - 1) / kRows);
    Launch(stream, {dim3(blocks, row_blocks), 32 * kWarps, 0, "FmaGemm"}, FmaGemm<kDType, kRows>,
           part);
  }
}

}  // namespace

void LaunchFmaGemm(Stream& stream, const GemmLaunch& args) {
  VisitDType<DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
             DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K>(
      args.weight.dtype, [&](auto dtype) {
        if (args.rows == 1) {
          LaunchRows<dtype(), 1>(stream, args);
        } else if (args.rows <= 4) {
          LaunchRows<dtype(), 4>(stream, args);
        } else {
          LaunchRows<dtype(), 8>(stream, args);
        }
      });
}

}  // namespace refrain::kernels::cuda
