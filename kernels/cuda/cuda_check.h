#ifndef REFRAIN_KERNELS_CUDA_CUDA_CHECK_H_
#define REFRAIN_KERNELS_CUDA_CUDA_CHECK_H_

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::kernels::cuda {

// The status of a call of the CUDA runtime: `call` is its name, with what it was about.
inline absl::Status StatusOf(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // told here; not again by the next launch, unless it sticks to the device
  return absl::InternalError(
      absl::StrCat(call, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"));
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUDA_CHECK_H_
