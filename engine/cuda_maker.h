#ifndef REFRAIN_ENGINE_CUDA_MAKER_H_
#define REFRAIN_ENGINE_CUDA_MAKER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "kernels/backend.h"

namespace refrain::engine {

// The CUDA back end on backend.device, in builds that have one (--config=cuda). backend.isa `sm_80`
// leaves out what only Hopper has; levels of a CPU say nothing here. Its attention is tried first
// (kernels/cuda/attention_check.h), and products by cuBLASLt as weights are packed
// (kernels/cuda/library_products.h). FAILED_PRECONDITION: this build has none, or this machine has
// no driver, none that is new enough or no device that is, or the device cannot be used; NOT_FOUND:
// no device of this number; INTERNAL: the device failed.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeCudaBackend(const BackendOptions& options);

// Whether this build has one.
bool BuildHasCuda();

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CUDA_MAKER_H_
