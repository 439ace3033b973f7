#ifndef REFRAIN_ENGINE_BACKEND_FACTORY_H_
#define REFRAIN_ENGINE_BACKEND_FACTORY_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "kernels/backend.h"

namespace refrain::engine {

// The back end that the configuration asks for; `auto` takes the best one this machine can run.
// INVALID_ARGUMENT names an unknown kind and the valid ones, FAILED_PRECONDITION one that this
// machine or build has not got.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const BackendOptions& options);

// `auto`, `f32`, `bf16`, `quantized`.
absl::StatusOr<kernels::ComputeDType> ParseComputeDType(std::string_view name);

// `auto` (what the back end prefers), `f32`, `f16`, `bf16`.
absl::StatusOr<kernels::DType> ParseKvDType(std::string_view name, const kernels::Backend& backend);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BACKEND_FACTORY_H_
