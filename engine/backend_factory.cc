#include "engine/backend_factory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cuda_maker.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace refrain::engine {

absl::StatusOr<ChosenBackend> ChooseBackend(const BackendOptions& options) {
  return ChooseBackend(options, BuildHasCuda(), &MakeCudaBackend);
}

absl::StatusOr<ChosenBackend> ChooseBackend(const BackendOptions& options, bool build_has_cuda,
                                            const CudaMaker& make_cuda) {
  ChosenBackend chosen;
  if (options.kind == "reference") {
    chosen.backend = std::make_unique<kernels::ReferenceBackend>();
    return chosen;
  }
  if (options.kind != "auto" && options.kind != "cpu" && options.kind != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("backend.kind is \"", options.kind, "\"; valid: auto, cpu, cuda, reference"));
  }
  if (options.kind == "cuda" || (options.kind == "auto" && build_has_cuda)) {
    absl::StatusOr<std::unique_ptr<kernels::Backend>> cuda = make_cuda(options);
    if (cuda.ok()) {
      chosen.backend = *std::move(cuda);
      return chosen;
    }
    const bool fall_back =
        options.kind == "auto" && cuda.status().code() == absl::StatusCode::kFailedPrecondition;
    if (!fall_back) {
      return absl::Status(cuda.status().code(),
                          absl::StrCat("backend.kind is \"", options.kind, "\", backend.device is ",
                                       options.device, ": ", cuda.status().message()));
    }
    chosen.note = absl::StrCat("CUDA is not used: ", cuda.status().message());
  }
  const std::string isa = options.kind == "auto" ? IsaOnHost(options.isa) : options.isa;
  auto cpu = kernels::cpu::CpuBackend::Create({options.threads, isa});
  if (!cpu.ok()) return WithNote(cpu.status(), chosen.note);
  chosen.backend = *std::move(cpu);
  return chosen;
}

std::string IsaOnHost(const std::string& isa) { return isa == "sm_80" ? "auto" : isa; }

absl::Status WithNote(const absl::Status& status, const std::string& note) {
  if (status.ok() || note.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), "; ", note));
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const BackendOptions& options) {
  absl::StatusOr<ChosenBackend> chosen = ChooseBackend(options);
  if (!chosen.ok()) return chosen.status();
  return std::move(chosen->backend);
}

absl::StatusOr<kernels::ComputeDType> ParseComputeDType(std::string_view name) {
  using kernels::ComputeDType;
  if (name == "auto") return ComputeDType::kAuto;
  if (name == "f32") return ComputeDType::kF32;
  if (name == "bf16") return ComputeDType::kBF16;
  if (name == "quantized") return ComputeDType::kQuantized;
  if (name == "int8") return ComputeDType::kInt8;
  return absl::InvalidArgumentError(absl::StrCat("backend.compute_dtype is \"", std::string(name),
                                                 "\"; valid: auto, f32, bf16, quantized, int8"));
}

absl::StatusOr<kernels::DType> ParseKvDType(std::string_view name, const kernels::Backend& backend,
                                            const ModelConfig& config) {
  using kernels::DType;
  if (name == "auto") {
    const DType preferred = backend.info().preferred_kv;
    // Keys of some hundreds by their biases differ in the last bits of bf16.
    return config.qkv_bias && preferred == DType::kBF16 ? DType::kF16 : preferred;
  }
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name == "fp8_e4m3" || name == "fp8") return DType::kF8E4M3;
  return absl::InvalidArgumentError(
      absl::StrCat("kv_cache.dtype is \"", std::string(name),
                   "\"; valid: auto, f32, f16, bf16, fp8_e4m3 (or fp8)"));
}

}  // namespace refrain::engine
