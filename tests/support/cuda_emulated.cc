#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/support/cuda_attention_kernel.h"
#include "tests/support/cuda_variants.h"

namespace refrain::testing {

std::unique_ptr<kernels::Backend> MakeEmulatedCudaBackend(const std::string& attention) {
  auto backend = kernels::cuda::CudaBackend::Create(
      kernels::cuda::emulated::MakeEmulatedRuntime({}), kernels::cuda::WithAttention(attention));
  return backend.ok() ? *std::move(backend) : nullptr;
}

}  // namespace refrain::testing
