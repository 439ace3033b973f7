#ifndef REFRAIN_KERNELS_CUDA_COPY_SMALL_H_
#define REFRAIN_KERNELS_CUDA_COPY_SMALL_H_

#include <cstddef>

namespace refrain::kernels::cuda {

class Stream;

// Copies a step's few bytes between pinned host memory and the device by a kernel. A copy engine
// has one queue for each direction, whatever stream a copy stands on: behind a ChunkMover's
// megabytes a step would wait for all of them. Both sides aligned to 16 bytes; the launch keeps its
// failure in the stream. Beyond kMostSmallBytes a copy engine is the faster one.
inline constexpr size_t kMostSmallBytes = size_t{256} << 10;
struct CopySmallLaunch {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};
void LaunchCopySmall(Stream& stream, const CopySmallLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_COPY_SMALL_H_
