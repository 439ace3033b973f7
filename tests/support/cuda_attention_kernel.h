#ifndef REFRAIN_TESTS_SUPPORT_CUDA_ATTENTION_KERNEL_H_
#define REFRAIN_TESTS_SUPPORT_CUDA_ATTENTION_KERNEL_H_

#include <optional>
#include <string>

#include "kernels/cuda/cuda_backend.h"

// CudaOptions::attention by name, in the variant that includes this; none for any other name.
namespace refrain::kernels::cuda {

inline std::optional<AttentionKernel> AttentionKernelNamed(const std::string& name) {
  if (name == "generic") return AttentionKernel::kGeneric;
  if (name == "mma") return AttentionKernel::kMma;
  return std::nullopt;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_SUPPORT_CUDA_ATTENTION_KERNEL_H_
