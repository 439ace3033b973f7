#include "kernels/cuda/device_language.h"
#include "kernels/cuda/gemm_kernels.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// One block per row and stretch of columns.
__global__ void __launch_bounds__(kThreads) AddSplits(GemmLaunch args) {
  const int64_t n = args.weight.rows, row = blockIdx.y;
  const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= n) return;
  float sum = 0.0f;
  for (int split = 0; split < args.splits; ++split) {
    sum += args.split_sums[(split * args.rows + row) * n + col];
  }
  float& out = args.out.data[row * args.out.stride + col];
  out = args.accumulate ? out + sum : sum;
}

}  // namespace

void LaunchAddSplits(Stream& stream, const GemmLaunch& args) {
  const auto blocks = static_cast<unsigned>((args.weight.rows + kThreads - 1) / kThreads);
  Launch(stream, {dim3(blocks, static_cast<unsigned>(args.rows)), kThreads, 0, "AddSplits"},
         AddSplits, args);
}

}  // namespace refrain::kernels::cuda
