#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/support/cuda_attention_kernel.h"
#include "tests/support/cuda_variants.h"

namespace refrain::testing {

namespace cuda = kernels::cuda;

std::unique_ptr<kernels::Backend> MakeEmulatedCudaBackend(const std::string& attention) {
  cuda::CudaOptions options = cuda::WithAttention(attention);
  if (options.check_attention) {
    // Of all head dims it takes 17 s each time, once is enough (attention_check_test).
    options.check_attention = [](cuda::AttentionKernel kernel, const auto& properties, auto& device,
                                 const auto& attend) {
      static constexpr int kOneHeadDim[] = {64};
      return cuda::FindAttentionFaultIn(kOneHeadDim, kernel, properties, device, attend);
    };
  }
  auto backend = cuda::CudaBackend::Create(cuda::emulated::MakeEmulatedRuntime({}), options);
  return backend.ok() ? *std::move(backend) : nullptr;
}

}  // namespace refrain::testing
