#ifndef REFRAIN_ENGINE_BACKEND_FACTORY_H_
#define REFRAIN_ENGINE_BACKEND_FACTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/options.h"
#include "kernels/backend.h"

namespace refrain::engine {

// How a CUDA back end is made; engine/cuda_maker.h has the one of this build.
using CudaMaker =
    std::function<absl::StatusOr<std::unique_ptr<kernels::Backend>>(const BackendOptions&)>;

struct ChosenBackend {
  std::unique_ptr<kernels::Backend> backend;
  std::string note;  // why it is not a better one, for the log; "" where there is nothing to say
};

// The back end that the configuration asks for; `auto` takes the best one this machine can run: a
// GPU where the build knows them and one is there, else the CPU, with a note why. INVALID_ARGUMENT
// names an unknown kind and the valid ones, FAILED_PRECONDITION one that this machine or build has
// not got, NOT_FOUND a backend.device that does not exist beside others that do, also for `auto`.
absl::StatusOr<ChosenBackend> ChooseBackend(const BackendOptions& options);
absl::StatusOr<ChosenBackend> ChooseBackend(const BackendOptions& options, bool build_has_cuda,
                                            const CudaMaker& make_cuda);

// What backend.isa means where the CPU takes a GPU's place: a GPU's level says nothing of it.
std::string IsaOnHost(const std::string& isa);

// A failure and why nothing better was tried before it; as it is where there is nothing to say.
absl::Status WithNote(const absl::Status& status, const std::string& note);

// ChooseBackend without the note.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const BackendOptions& options);

// `auto`, `f32`, `bf16`, `quantized`, `int8`.
absl::StatusOr<kernels::ComputeDType> ParseComputeDType(std::string_view name);

// `auto` (what the back end prefers, but for a model with large keys no bf16), `f32`, `f16`,
// `bf16`, `fp8_e4m3` and its short name `fp8`.
absl::StatusOr<kernels::DType> ParseKvDType(std::string_view name, const kernels::Backend& backend,
                                            const ModelConfig& config);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BACKEND_FACTORY_H_
