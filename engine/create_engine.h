#ifndef REFRAIN_ENGINE_CREATE_ENGINE_H_
#define REFRAIN_ENGINE_CREATE_ENGINE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "engine/backend_factory.h"
#include "engine/engine_parts.h"
#include "engine/options.h"

namespace refrain::engine {

// MakeEngineParts on back ends of the caller's: called with options.backend, and again with kind
// "cpu" where the model does not fit on what came and the configuration leaves the choice.
using BackendChooser = std::function<absl::StatusOr<ChosenBackend>(const BackendOptions&)>;
absl::StatusOr<EngineParts> MakeEngineParts(const EngineOptions& options,
                                            const BackendChooser& choose);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CREATE_ENGINE_H_
