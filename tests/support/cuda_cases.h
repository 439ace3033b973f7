#ifndef REFRAIN_TESTS_SUPPORT_CUDA_CASES_H_
#define REFRAIN_TESTS_SUPPORT_CUDA_CASES_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace refrain::testing {

// The CUDA back ends that can run here: "cuda_emulated" everywhere, "cuda" in a build for GPUs on a
// machine that has one.
std::vector<std::string> CudaBackendNames();

// Null when the name is none of these. `attention` names an attention kernel ("generic", "mma") to
// be used wherever it has the shape; "": the fastest; "one_multiprocessor": the fastest, on one
// alone; "checked": the fastest that is right on this card, and products by the device's library
// where they are faster, as the daemon has it; "own_products": the same without that library.
std::unique_ptr<kernels::Backend> MakeCudaBackend(const std::string& name,
                                                  const std::string& attention = "");

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_CUDA_CASES_H_
