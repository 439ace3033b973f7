#ifndef REFRAIN_KERNELS_CUDA_KV_ELEMENTS_H_
#define REFRAIN_KERNELS_CUDA_KV_ELEMENTS_H_

// Elements of K and V one by one, T being float, F16, BF16 or E4M3 (DType::kF8E4M3). Included by
// kernels.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"

namespace refrain::kernels::cuda {

struct E4M3 {};

template <class T>
inline constexpr int kKvElementBytes = std::is_same_v<T, float>  ? 4
                                       : std::is_same_v<T, E4M3> ? 1
                                                                 : 2;

// By whole numbers and f32 alone: instructions for E4M3 come with sm_89, code for sm_80 has to run
// too.
__device__ __forceinline__ float E4m3ToFloat(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7fu;
  // Exponent and mantissa moved into place are the value times 2^-120, subnormals included.
  const float scaled = __uint_as_float(magnitude << 20) * 0x1p120f;
  const uint32_t value = magnitude == 0x7f ? 0x7fc00000u : __float_as_uint(scaled);
  return __uint_as_float(value | static_cast<uint32_t>(bits & 0x80u) << 24);
}

// To nearest even; 448 beyond it, NaN stays NaN.
__device__ __forceinline__ uint8_t FloatToE4m3(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude > 0x7f800000u) {
    code = 0x7f;
  } else if (magnitude >= 0x43e00000u) {  // 448
    code = 0x7e;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6, the smallest normal
    code = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u) - (120u << 23)) >> 20;
  } else {
    // Adding 2^14 leaves units of 2^-9 in the last place: the addition rounds.
    code = __float_as_uint(__uint_as_float(magnitude) + 0x1p14f) - 0x46800000u;
  }
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | code);
}

// Eight elements of E4M3, the first in the lowest byte, as bf16. Exact.
__device__ __forceinline__ uint4 E4m3UnitToBf16(uint2 unit) {
  const auto pair = [](uint32_t bytes) {
    return PackPair<BF16>(E4m3ToFloat(static_cast<uint8_t>(bytes & 0xffu)),
                          E4m3ToFloat(static_cast<uint8_t>(bytes >> 8 & 0xffu)));
  };
  return make_uint4(pair(unit.x), pair(unit.x >> 16), pair(unit.y), pair(unit.y >> 16));
}

template <class T>
__device__ __forceinline__ float LoadKv(const std::byte* head, int64_t index) {
  if constexpr (std::is_same_v<T, float>) {
    return reinterpret_cast<const float*>(head)[index];
  } else if constexpr (std::is_same_v<T, E4M3>) {
    return E4m3ToFloat(reinterpret_cast<const uint8_t*>(head)[index]);
  } else if constexpr (std::is_same_v<T, F16>) {
    return HalfToFloat(reinterpret_cast<const uint16_t*>(head)[index]);
  } else {
    return Bf16ToFloat(reinterpret_cast<const uint16_t*>(head)[index]);
  }
}

template <class T>
__device__ __forceinline__ void StoreKv(std::byte* head, int64_t index, float value) {
  if constexpr (std::is_same_v<T, float>) {
    reinterpret_cast<float*>(head)[index] = value;
  } else if constexpr (std::is_same_v<T, E4M3>) {
    reinterpret_cast<uint8_t*>(head)[index] = FloatToE4m3(value);
  } else {
    reinterpret_cast<uint16_t*>(head)[index] =
        std::is_same_v<T, F16> ? FloatToHalf(value) : FloatToBf16(value);
  }
}

// Whether what StoreKv makes of `value` is a finite number: E4M3 has 448 in place of infinity.
template <class T>
__device__ __forceinline__ bool IsFiniteAs(float value) {
  if constexpr (std::is_same_v<T, E4M3>) {
    return value == value;
  } else if constexpr (std::is_same_v<T, F16>) {
    return (FloatToHalf(value) & 0x7c00u) != 0x7c00u;
  } else if constexpr (std::is_same_v<T, BF16>) {
    return (FloatToBf16(value) & 0x7f80u) != 0x7f80u;
  } else {
    return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_KV_ELEMENTS_H_
