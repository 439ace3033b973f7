#ifndef REFRAIN_TESTS_SUPPORT_CUDA_VARIANTS_H_
#define REFRAIN_TESTS_SUPPORT_CUDA_VARIANTS_H_

#include <memory>

#include "kernels/backend.h"

namespace refrain::testing {

// One file per variant of the CUDA back end, for its headers mean another namespace in each.
std::unique_ptr<kernels::Backend> MakeEmulatedCudaBackend();
std::unique_ptr<kernels::Backend> MakeGpuBackend();  // null: no GPU, or a build without CUDA

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_CUDA_VARIANTS_H_
