#include <algorithm>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/load_activations.h"
#include "kernels/cuda/load_weights.h"

namespace refrain::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarps = 4;

// Adds what the lanes have: sum i is in sums[0] of lane 32 / kSums * i afterwards. Lanes 16 apart
// are added first, then 8 apart, and so on, whatever kSums is: one order. While there are sums to
// share out, each lane of a pair goes on with half of them.
template <int kSums>
__device__ __forceinline__ void SumOverLanes(float (&sums)[kSums]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int lanes = 16;
#pragma unroll
  for (int half = kSums / 2; half > 0; half /= 2, lanes /= 2) {
    const bool upper = (lane & lanes) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = upper ? sums[i] : sums[i + half];
      const float kept = upper ? sums[i + half] : sums[i];
      sums[i] = kept + __shfl_xor_sync(kAllLanes, given, lanes);
    }
  }
  for (; lanes > 0; lanes /= 2) sums[0] += __shfl_xor_sync(kAllLanes, sums[0], lanes);
}

// Warp w of block b has rows [kCols * (kWarps * b + w), + kCols) of W and rows [kRows * blockIdx.y,
// + kRows) of x. Lane l sums elements 8 l to 8 l + 7 of every 256, then the lanes' sums are added:
// one order for every kRows and kCols.
template <DType kDType, int kRows, int kCols>
__global__ void __launch_bounds__(32 * kWarps) FmaGemm(GemmLaunch args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_n = (int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * kCols;
  if (first_n >= args.weight.rows) return;  // of the whole warp
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const int64_t k_end = args.weight.cols;
  const bool aligned = args.x.stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0;
  float sums[kRows * kCols] = {};
  for (int64_t stretch = 0, k = 8 * lane; k < k_end; ++stretch, k += 256) {
    float weights[kCols][8];
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      // Beyond the last row the last one is summed again, and not stored.
      const int64_t n = first_n + c < args.weight.rows ? first_n + c : args.weight.rows - 1;
      const std::byte* const w = args.weight.data + n * args.weight.row_bytes;
      LoadWeights8<kDType>(w, w + args.weight.side_bytes, stretch, 8 * lane, weights[c]);
    }
    // Weights beyond k_end are zeros too: their products change no sum.
    float x[kRows][8];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // Beyond the last row the last one is read again, and not used.
      const int64_t row = first_row + r < args.rows ? first_row + r : args.rows - 1;
      LoadX8(args.x.data + row * args.x.stride + k, aligned, k_end - k, x[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r >= args.rows) break;  // of the whole block
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          sums[r * kCols + c] = fmaf(x[r][i], weights[c][i], sums[r * kCols + c]);
        }
      }
    }
  }
  SumOverLanes(sums);
  constexpr int kLanesPerSum = 32 / (kRows * kCols);
  const int sum = lane / kLanesPerSum;
  const int64_t row = first_row + sum / kCols, n = first_n + sum % kCols;
  if (lane % kLanesPerSum != 0 || row >= args.rows || n >= args.weight.rows) return;
  float& out = args.out.data[row * args.out.stride + n];
  out = args.accumulate ? out + sums[0] : sums[0];
}

template <DType kDType, int kRows, int kCols>
void LaunchRows(Stream& stream, const GemmLaunch& args) {
  const auto blocks =
      static_cast<unsigned>((args.weight.rows + kWarps * kCols - 1) / (kWarps * kCols));
  // As many rows as a grid has, one launch after the other.
  constexpr int64_t kMostRows = int64_t{65535} * kRows;
  for (int64_t row = 0; row < args.rows; row += kMostRows) {
    GemmLaunch part = args;
    part.x.data += row * args.x.stride;
    part.out.data += row * args.out.stride;
    part.rows = std::min(kMostRows, args.rows - row);
    const auto row_blocks = static_cast<unsigned>((part.rows + kRows - 1) / kRows);
    Launch(stream, {dim3(blocks, row_blocks), 32 * kWarps, 0, "FmaGemm"},
           FmaGemm<kDType, kRows, kCols>, part);
  }
}

}  // namespace

void LaunchFmaGemm(Stream& stream, const GemmLaunch& args) {
  VisitDType<DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
             DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K>(
      args.weight.dtype, [&](auto dtype) {
        if (args.rows == 1) {
          LaunchRows<dtype(), 1, 4>(stream, args);
        } else if (args.rows <= 4) {
          LaunchRows<dtype(), 4, 4>(stream, args);
        } else {
          LaunchRows<dtype(), 8, 1>(stream, args);
        }
      });
}

}  // namespace refrain::kernels::cuda
