#include "kernels/cuda/cuda_backend.h"
#include "tests/support/cuda_variants.h"

namespace refrain::testing {

std::unique_ptr<kernels::Backend> MakeGpuBackend() {
  auto backend = kernels::cuda::CudaBackend::Create(kernels::cuda::CudaOptions{});
  return backend.ok() ? *std::move(backend) : nullptr;
}

}  // namespace refrain::testing
