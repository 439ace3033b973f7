#include "engine/cuda_maker.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeCudaBackend(const BackendOptions& options) {
  return absl::FailedPreconditionError(
      "this build has no CUDA back end (it was not built with --config=cuda)");
}

bool BuildHasCuda() { return false; }

}  // namespace refrain::engine
