#ifndef REFRAIN_KERNELS_CUDA_DEVICE_LANGUAGE_NVCC_H_
#define REFRAIN_KERNELS_CUDA_DEVICE_LANGUAGE_NVCC_H_

// device_language.h as nvcc sees it; included by that header only.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/cuda/stream.h"

namespace refrain::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  const char* kernel = "";
  bool early = false;  // of sm_90 and on: see WaitForKernelBefore in instructions.h
};

// The block's dynamic shared memory, aligned to 1,024 bytes.
template <class T>
__device__ __forceinline__ T* SharedMemory() {
  extern __shared__ __align__(1024) unsigned char refrain_dynamic_shared[];
  return reinterpret_cast<T*>(refrain_dynamic_shared);
}

// Puts one launch on the stream. A refusal is kept in the stream.
template <class... Params, class... Args>
void Launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
  if (stream.failure().has_value()) return;
  constexpr size_t kSharedBytesOfEveryKernel = 48 << 10;
  cudaError_t error = cudaSuccess;
  if (shape.shared_bytes > kSharedBytesOfEveryKernel) {
    error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared_bytes));
  }
  if (error == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream.native());
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = shape.early ? 1 : 0;
    error = cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
  }
  if (error == cudaSuccess) return;
  cudaGetLastError();  // a refused launch is told here, not by the next call
  stream.KeepFailure(
      "launch of " + std::string(shape.kernel) + ": " + cudaGetErrorName(error) + " (" +
          cudaGetErrorString(error) + ")",
      error == cudaErrorMemoryAllocation ? Stream::Refusal::kNoMemory : Stream::Refusal::kOther);
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_DEVICE_LANGUAGE_NVCC_H_
