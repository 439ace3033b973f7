#ifndef REFRAIN_KERNELS_CUDA_CUBLAS_LT_H_
#define REFRAIN_KERNELS_CUDA_CUBLAS_LT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/product_library.h"

namespace refrain::kernels::cuda {

// NVIDIA's cuBLASLt of the version that this was built for, loaded now: from where the loader looks
// (LD_LIBRARY_PATH), else from /usr/local/cuda/lib64. Its 500 MiB are nothing that a daemon without
// it should have to carry. The device must be the calling thread's own. NOT_FOUND: it is not there;
// FAILED_PRECONDITION: it is another version, or will not work with this driver.
absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt();

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUBLAS_LT_H_
