#ifndef REFRAIN_KERNELS_CUDA_CUDA_CHECK_H_
#define REFRAIN_KERNELS_CUDA_CUDA_CHECK_H_

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::kernels::cuda {

// The status of a call of the CUDA runtime that waits or asks: `call` is its name, with what it was
// about. INTERNAL also where the error is a want of memory: it is that of earlier work, which is
// lost.
inline absl::Status StatusOf(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // told here; not again by the next launch, unless it sticks to the device
  return absl::InternalError(
      absl::StrCat(call, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"));
}

// The same of a call that makes something or puts it on a stream. RESOURCE_EXHAUSTED: it found no
// memory for that and has done nothing.
inline absl::Status StatusOfNew(cudaError_t error, absl::string_view call) {
  absl::Status status = StatusOf(error, call);
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(status.message())
                                            : status;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUDA_CHECK_H_
