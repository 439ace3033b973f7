#include "kernels/cuda/copy_small.h"

#include "kernels/cuda/device_language.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr size_t kUnit = sizeof(uint4);

// A thread for every 16 bytes, the last one for what is left.
__global__ void __launch_bounds__(kThreads) CopySmall(CopySmallLaunch args) {
  const size_t at = (size_t{blockIdx.x} * blockDim.x + threadIdx.x) * kUnit;
  if (at + kUnit <= args.bytes) {
    *reinterpret_cast<uint4*>(args.to + at) = *reinterpret_cast<const uint4*>(args.from + at);
    return;
  }
  for (size_t i = at; i < args.bytes; ++i) args.to[i] = args.from[i];
}

}  // namespace

void LaunchCopySmall(Stream& stream, const CopySmallLaunch& args) {
  if (args.bytes == 0) return;
  const size_t bytes_of_block = kThreads * kUnit;
  const auto blocks = static_cast<unsigned>((args.bytes + bytes_of_block - 1) / bytes_of_block);
  Launch(stream, {dim3(blocks), kThreads, 0, "CopySmall"}, CopySmall, args);
}

}  // namespace refrain::kernels::cuda
