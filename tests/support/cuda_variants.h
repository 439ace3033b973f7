#ifndef REFRAIN_TESTS_SUPPORT_CUDA_VARIANTS_H_
#define REFRAIN_TESTS_SUPPORT_CUDA_VARIANTS_H_

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace refrain::testing {

// One file per variant of the CUDA back end, for its headers mean another namespace in each.
// `attention` is a kernel's name ("generic", "mma") or "": CudaOptions::attention.
std::unique_ptr<kernels::Backend> MakeEmulatedCudaBackend(const std::string& attention);
// Null: no GPU, or a build without CUDA.
std::unique_ptr<kernels::Backend> MakeGpuBackend(const std::string& attention);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_CUDA_VARIANTS_H_
