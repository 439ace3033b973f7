#include "kernels/cuda/cuda_backend.h"
#include "tests/support/cuda_attention_kernel.h"
#include "tests/support/cuda_variants.h"

namespace refrain::testing {

std::unique_ptr<kernels::Backend> MakeGpuBackend(const std::string& attention) {
  auto backend = kernels::cuda::CudaBackend::Create(kernels::cuda::WithAttention(attention));
  return backend.ok() ? *std::move(backend) : nullptr;
}

}  // namespace refrain::testing
