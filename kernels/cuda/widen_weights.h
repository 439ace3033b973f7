#ifndef REFRAIN_KERNELS_CUDA_WIDEN_WEIGHTS_H_
#define REFRAIN_KERNELS_CUDA_WIDEN_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_matrix.h"

namespace refrain::kernels::cuda {

class Stream;

// A quantised weight as f16, as kTile of gemm.h rounds it (beyond f16's range to its largest).
struct WidenWeightsLaunch {
  DeviceMatrix weight;
  std::byte* out = nullptr;  // [weight.rows, weight.cols], on a 16-byte border
};

// Failure is kept in the stream. Only types of which Traits says `quantized`.
void LaunchWidenWeights(Stream& stream, const WidenWeightsLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_WIDEN_WEIGHTS_H_
