#include "kernels/cuda/device_language.h"
#include "kernels/cuda/load_activations.h"
#include "kernels/cuda/round_rows.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread for every eight elements of out.
template <class T>
__global__ void __launch_bounds__(kThreads) RoundRows(RoundRowsLaunch args, bool aligned) {
  const int64_t units = args.out_stride / 8;
  const int64_t unit = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (unit >= args.rows * units) return;
  const int64_t row = unit / units, col = unit % units * 8;
  float values[8];
  LoadX8(args.x.data + row * args.x.stride + col, aligned, args.cols - col, values);
  reinterpret_cast<uint4*>(args.out)[unit] = PackUnit<T>(values);
}

template <class T>
void LaunchFor(Stream& stream, const RoundRowsLaunch& args) {
  const int64_t units = args.rows * (args.out_stride / 8);
  const auto blocks = static_cast<unsigned>((units + kThreads - 1) / kThreads);
  const bool aligned = reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 && args.x.stride % 4 == 0;
  Launch(stream, {dim3(blocks), kThreads, 0, "RoundRows"}, RoundRows<T>, args, aligned);
}

}  // namespace

void LaunchRoundRows(Stream& stream, const RoundRowsLaunch& args) {
  if (args.rows == 0 || args.cols == 0) return;
  args.dtype == DType::kBF16 ? LaunchFor<BF16>(stream, args) : LaunchFor<F16>(stream, args);
}

}  // namespace refrain::kernels::cuda
