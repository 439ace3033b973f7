#include "engine/backend_factory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const BackendOptions& options) {
  if (options.kind == "reference") return std::make_unique<kernels::ReferenceBackend>();
  if (options.kind == "cuda") {
    return absl::FailedPreconditionError(
        "backend.kind is \"cuda\", but this build has no CUDA back end");
  }
  if (options.kind != "auto" && options.kind != "cpu") {
    return absl::InvalidArgumentError(
        absl::StrCat("backend.kind is \"", options.kind, "\"; valid: auto, cpu, cuda, reference"));
  }
  auto backend = kernels::cpu::CpuBackend::Create({options.threads, options.isa});
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<kernels::Backend>(*std::move(backend));
}

absl::StatusOr<kernels::ComputeDType> ParseComputeDType(std::string_view name) {
  using kernels::ComputeDType;
  if (name == "auto") return ComputeDType::kAuto;
  if (name == "f32") return ComputeDType::kF32;
  if (name == "bf16") return ComputeDType::kBF16;
  if (name == "quantized") return ComputeDType::kQuantized;
  return absl::InvalidArgumentError(absl::StrCat("backend.compute_dtype is \"", std::string(name),
                                                 "\"; valid: auto, f32, bf16, quantized"));
}

absl::StatusOr<kernels::DType> ParseKvDType(std::string_view name,
                                            const kernels::Backend& backend) {
  using kernels::DType;
  if (name == "auto") return backend.info().preferred_kv;
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  return absl::InvalidArgumentError(
      absl::StrCat("kv_cache.dtype is \"", std::string(name), "\"; valid: auto, f32, f16, bf16"));
}

}  // namespace refrain::engine
