#include "tests/kernels/conformance/linear_oracle.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/cpu/quantized_blocks.h"

namespace refrain::kernels {

std::vector<BackendAndType> BackendsAndTypes() {
  std::vector<BackendAndType> all;
  for (const BackendCase& backend : BackendCases()) {
    for (const DTypeTraits& traits : kDTypes) all.emplace_back(backend, traits.dtype);
  }
  return all;
}

std::string BackendAndTypeName(const ::testing::TestParamInfo<BackendAndType>& info) {
  return std::get<0>(info.param).name() + "_" + std::string(Traits(std::get<1>(info.param)).name);
}

double RelativeError(std::span<const float> got, std::span<const float> want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

double TypicalSize(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += std::pow(static_cast<double>(value), 2);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

std::vector<std::byte> StoredRows(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  if (Traits(dtype).quantized) return cpu::RandomRows(dtype, rows, cols, seed);
  const std::vector<float> values = RandomFloats(rows * cols, seed);
  std::vector<std::byte> stored(values.size() * Traits(dtype).block_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(stored.data() + 4 * i, &values[i], 4);
    } else if (dtype == DType::kF16) {
      const auto half = static_cast<_Float16>(values[i]);
      std::memcpy(stored.data() + 2 * i, &half, 2);
    } else {
      std::memcpy(stored.data() + 2 * i, reinterpret_cast<const std::byte*>(&values[i]) + 2, 2);
    }
  }
  return stored;
}

PackedTwice::PackedTwice(Backend& backend, ReferenceBackend& reference,
                         std::span<const WeightSlice> slices, PackOptions options)
    : got(*backend.PackLinear(slices, options)), want(*reference.PackLinear(slices, options)) {}

PackedTwice::PackedTwice(Backend& backend, ReferenceBackend& reference, const WeightSlice& slice,
                         PackOptions options)
    : PackedTwice(backend, reference, std::span(&slice, 1), options) {}

double LinearTolerance(const BackendCase& backend, ComputeDType compute, DType dtype) {
  if (compute ==
      ComputeDType::kInt8) {  // as kAuto where weights are not quantised, and on a device
    if (Traits(dtype).quantized && backend.cuda.empty()) return 1e-2;
    compute = ComputeDType::kAuto;
  }
  if (compute == ComputeDType::kF32 || (compute == ComputeDType::kAuto && dtype == DType::kF32)) {
    return 1e-6;
  }
  if (backend.cuda.empty() && compute == ComputeDType::kAuto && dtype != DType::kBF16) {
    return Traits(dtype).quantized ? 1e-4 : 1e-6;
  }
  return compute == ComputeDType::kBF16 || dtype == DType::kBF16 ? 4e-3 : 6e-4;
}

}  // namespace refrain::kernels
