#ifndef REFRAIN_KERNELS_DTYPE_H_
#define REFRAIN_KERNELS_DTYPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace refrain::kernels {

// Element types of weights, activations and KV. Quantised types are GGUF's block formats: a block
// of `block_elements` consecutive elements of one row takes `block_bytes` bytes.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kF8E4M3,  // of K and V only
};

struct DTypeTraits {
  DType dtype;
  std::string_view name;  // as in GGUF, lower case
  int block_elements;
  int block_bytes;
  bool quantized;
};

// What weights may be stored as.
inline constexpr std::array<DTypeTraits, 11> kDTypes = {{
    {DType::kF32, "f32", 1, 4, false},
    {DType::kF16, "f16", 1, 2, false},
    {DType::kBF16, "bf16", 1, 2, false},
    {DType::kQ8_0, "q8_0", 32, 34, true},
    {DType::kQ4_0, "q4_0", 32, 18, true},
    {DType::kQ4_1, "q4_1", 32, 20, true},
    {DType::kQ5_0, "q5_0", 32, 22, true},
    {DType::kQ5_1, "q5_1", 32, 24, true},
    {DType::kQ4_K, "q4_k", 256, 144, true},
    {DType::kQ5_K, "q5_k", 256, 176, true},
    {DType::kQ6_K, "q6_k", 256, 210, true},
}};

// Floats of 8 bits as OCP has them (E4M3): sign, 4 bits of exponent with bias 7, 3 bits of
// mantissa; no infinities, NaN is 0x7f and 0xff, the greatest 448.
inline constexpr DTypeTraits kF8E4M3Traits = {DType::kF8E4M3, "fp8_e4m3", 1, 1, false};

constexpr const DTypeTraits& Traits(DType dtype) {
  return dtype == DType::kF8E4M3 ? kF8E4M3Traits : kDTypes[static_cast<size_t>(dtype)];
}

// Bytes of one row of `elements`, or nullopt when `elements` is not a whole number of blocks.
constexpr std::optional<size_t> RowBytes(DType dtype, int64_t elements) {
  const DTypeTraits& traits = Traits(dtype);
  if (elements < 0 || elements % traits.block_elements != 0) return std::nullopt;
  return static_cast<size_t>(elements / traits.block_elements) * traits.block_bytes;
}

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_DTYPE_H_
