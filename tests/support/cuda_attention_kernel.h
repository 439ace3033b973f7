#ifndef REFRAIN_TESTS_SUPPORT_CUDA_ATTENTION_KERNEL_H_
#define REFRAIN_TESTS_SUPPORT_CUDA_ATTENTION_KERNEL_H_

#include <string>

#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/cuda_backend.h"

// Options with the attention that MakeCudaBackend's `attention` names, in the variant that includes
// this.
namespace refrain::kernels::cuda {

inline CudaOptions WithAttention(const std::string& name) {
  CudaOptions options;
  if (name == "generic") options.attention = AttentionKernel::kGeneric;
  if (name == "mma") options.attention = AttentionKernel::kMma;
  if (name == "one_multiprocessor") options.attention_multiprocessors = 1;
  if (name == "checked" || name == "own_products") options.check_attention = &FindAttentionFault;
  if (name == "checked") options.library.emplace();
  return options;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_SUPPORT_CUDA_ATTENTION_KERNEL_H_
