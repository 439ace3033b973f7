#include "engine/cuda_maker.h"

#include <utility>

#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/cuda_backend.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeCudaBackend(const BackendOptions& options) {
  kernels::cuda::CudaOptions cuda;
  cuda.device = options.device;
  cuda.check_attention = &kernels::cuda::FindAttentionFault;
  if (options.product_library) {
    cuda.library.emplace().most_rows = options.most_rows;
    cuda.library->warn = options.warn;
  }
  if (options.isa == "sm_80") cuda.attention = kernels::cuda::AttentionKernel::kMma;
  auto backend = kernels::cuda::CudaBackend::Create(cuda);
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<kernels::Backend>(*std::move(backend));
}

bool BuildHasCuda() { return true; }

}  // namespace refrain::engine
