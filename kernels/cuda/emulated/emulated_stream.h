#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_STREAM_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_STREAM_H_

#include <functional>

#include "kernels/cuda/emulated/emulated_grid.h"
#include "kernels/cuda/stream.h"

namespace refrain::kernels::cuda::emulated {

// Puts a launch on a stream of the emulated device; a shape that a GPU would refuse is kept in the
// stream as its failure.
void EnqueueLaunch(Stream& stream, const GridShape& shape, std::function<void()> body);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_STREAM_H_
