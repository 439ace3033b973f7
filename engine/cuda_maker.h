#ifndef REFRAIN_ENGINE_CUDA_MAKER_H_
#define REFRAIN_ENGINE_CUDA_MAKER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace refrain::engine {

// The CUDA back end on device `device`, in builds that have one (--config=cuda).
// FAILED_PRECONDITION: this build has none, or this machine has no driver, none that is new enough
// or no device that is; NOT_FOUND: no device of this number.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeCudaBackend(int device);

// Whether this build has one.
bool BuildHasCuda();

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CUDA_MAKER_H_
