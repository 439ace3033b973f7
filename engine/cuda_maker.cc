#include "engine/cuda_maker.h"

#include <utility>

#include "kernels/cuda/cuda_backend.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeCudaBackend(int device) {
  auto backend = kernels::cuda::CudaBackend::Create(kernels::cuda::CudaOptions{.device = device});
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<kernels::Backend>(*std::move(backend));
}

bool BuildHasCuda() { return true; }

}  // namespace refrain::engine
