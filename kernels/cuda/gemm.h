#ifndef REFRAIN_KERNELS_CUDA_GEMM_H_
#define REFRAIN_KERNELS_CUDA_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_matrix.h"
#include "kernels/cuda/elementwise.h"

namespace refrain::kernels::cuda {

class Stream;

// out = x W^T (or +=): x [rows, k] and out [rows, n] in f32, W [n, k] as it is stored, dequantised
// inside the kernel. Own kernels for every shape; nothing here needs a library.
//
//   kFma   a warp per few rows of W and up to eight rows of x, products of f32 x f32, for any
//          weight type: exact weights, few rows
//   kTile  tensor cores (mma.m16n8k16): x and W rounded to f16 (beyond its range to the largest
//          f16), or both to bf16 where W is bf16; f32 sums. Not for f32 weights
//
// Either sums k in one order, whatever the number of rows, so a row's bits depend on its own x and
// on the kernel only: `reproducible` is to stay with one kernel per weight, and not to split k.
enum class GemmKernel : uint8_t { kFma, kTile };

struct GemmLaunch {
  DeviceMatrix weight;
  int64_t rows = 0;  // of x and out
  DeviceRows x;
  DeviceRows out;
  bool accumulate = false;
  // kTile only: so many blocks share out the k of a tile and leave their sums, which another kernel
  // adds, in order. Few rows and columns then still keep the whole device reading weights.
  int splits = 1;
  float* split_sums = nullptr;  // [splits, rows, n]
  // kTile only: x in 16 bits (RoundedAs), [rows, RoundedStride]. What is read of x then.
  const std::byte* rounded_x = nullptr;
};

// Elements of a row in 16 bits, zeros at the end: whole units of 16 bytes.
constexpr int64_t RoundedStride(int64_t cols) { return (cols + 7) / 8 * 8; }
constexpr size_t RoundedBytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * RoundedStride(cols)) * sizeof(uint16_t);
}
// As what kTile reads x beside such a weight.
constexpr DType RoundedAs(DType weight) {
  return weight == DType::kBF16 ? DType::kBF16 : DType::kF16;
}

inline size_t SplitSumBytes(const GemmLaunch& args) {
  return static_cast<size_t>(args.splits * args.rows * args.weight.rows) * sizeof(float);
}

// In how many parts the k of such a product is worth computing, where the arithmetic is free.
int ChooseSplits(const GemmLaunch& args, int multiprocessors);
// The most SplitSumBytes of products of `weight` and up to `rows` rows.
size_t MostSplitSumBytes(const DeviceMatrix& weight, int64_t rows, int multiprocessors);

// The kernel for `rows` rows, where the arithmetic is free.
GemmKernel ChooseGemm(DType weight, int64_t rows);

constexpr bool HasTileKernel(DType weight) { return weight != DType::kF32; }

void LaunchGemm(Stream& stream, GemmKernel kernel, const GemmLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_GEMM_H_
