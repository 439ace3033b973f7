#include "tools/bench/random_weight.h"

#include <random>

#include "kernels/reference/half_float.h"

namespace refrain::bench {

using kernels::DType;
using kernels::DTypeTraits;

std::vector<std::byte> RandomWeight(DType dtype, int64_t n, int64_t k, uint32_t seed) {
  const DTypeTraits& traits = kernels::Traits(dtype);
  std::vector<std::byte> data(n * *kernels::RowBytes(dtype, k));
  std::minstd_rand random(seed);
  if (!traits.quantized) {
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    for (size_t i = 0; i < data.size(); i += traits.block_bytes) {
      const float v = value(random);
      const uint16_t half = dtype == DType::kF16 ? kernels::F32ToF16(v) : kernels::F32ToBf16(v);
      if (dtype == DType::kF32) {
        __builtin_memcpy(&data[i], &v, sizeof(v));
      } else {
        __builtin_memcpy(&data[i], &half, sizeof(half));
      }
    }
    return data;
  }
  for (std::byte& byte : data) byte = static_cast<std::byte>(random() >> 8);
  const uint16_t scale = kernels::F32ToF16(0.002f);
  const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
                       dtype == DType::kQ5_K;
  for (size_t i = 0; i < data.size(); i += traits.block_bytes) {
    std::byte* at = &data[i + (dtype == DType::kQ6_K ? 208 : 0)];
    __builtin_memcpy(at, &scale, sizeof(scale));
    if (has_min) __builtin_memcpy(at + 2, &scale, sizeof(scale));
  }
  return data;
}

}  // namespace refrain::bench
