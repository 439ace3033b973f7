#include "kernels/cuda/device_language.h"
#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/load_activations.h"
#include "kernels/cuda/load_weights.h"
#include "kernels/cuda/widen_weights.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread for every eight elements: rows are whole blocks, of 32 elements at least.
template <DType kDType>
__global__ void __launch_bounds__(kThreads) WidenWeights(WidenWeightsLaunch args) {
  const int64_t units = args.weight.cols / 8;
  const int64_t unit = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (unit >= args.weight.rows * units) return;
  const std::byte* const row = args.weight.data + unit / units * args.weight.row_bytes;
  float values[8];
  LoadWeights8<kDType>(row, row + args.weight.side_bytes, unit % units * 8, values);
  reinterpret_cast<uint4*>(args.out)[unit] = PackUnit<F16>(values);
}

}  // namespace

void LaunchWidenWeights(Stream& stream, const WidenWeightsLaunch& args) {
  const int64_t units = args.weight.rows * (args.weight.cols / 8);
  if (units == 0) return;
  const auto blocks = static_cast<unsigned>((units + kThreads - 1) / kThreads);
  VisitDType<DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K,
             DType::kQ5_K, DType::kQ6_K>(args.weight.dtype, [&](auto dtype) {
    Launch(stream, {dim3(blocks), kThreads, 0, "WidenWeights"}, WidenWeights<dtype()>, args);
  });
}

}  // namespace refrain::kernels::cuda
