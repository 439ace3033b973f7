#include "tests/support/cuda_cases.h"

#include "tests/support/cuda_variants.h"

namespace refrain::testing {

std::vector<std::string> CudaBackendNames() {
  std::vector<std::string> names = {"cuda_emulated"};
  if (MakeGpuBackend("") != nullptr) names.push_back("cuda");
  return names;
}

std::unique_ptr<kernels::Backend> MakeCudaBackend(const std::string& name,
                                                  const std::string& attention) {
  if (name == "cuda_emulated") return MakeEmulatedCudaBackend(attention);
  return name == "cuda" ? MakeGpuBackend(attention) : nullptr;
}

}  // namespace refrain::testing
