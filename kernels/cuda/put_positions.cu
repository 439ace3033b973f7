#include "kernels/cuda/put_positions.h"

#include "kernels/cuda/device_language.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) PutPositions(PutPositionsLaunch args) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.count) return;
  const TokenPosition put = args.positions[i];
  args.table[put.token] = put.position;
}

}  // namespace

void LaunchPutPositions(Stream& stream, const PutPositionsLaunch& args) {
  if (args.count == 0) return;
  const auto blocks = static_cast<unsigned>((args.count + kThreads - 1) / kThreads);
  Launch(stream, {dim3(blocks), kThreads, 0, "PutPositions"}, PutPositions, args);
}

}  // namespace refrain::kernels::cuda
