#ifndef REFRAIN_KERNELS_CUDA_LOAD_ACTIVATIONS_H_
#define REFRAIN_KERNELS_CUDA_LOAD_ACTIVATIONS_H_

// Device code: activations of the matrix products, eight elements at a time. For .cu files only.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"

namespace refrain::kernels::cuda {

// x[0] to x[7], zeros from x[left] on. Aligned (16 bytes): lanes side by side read whole lines,
// where single floats 32 bytes apart would be eight passes over them.
__device__ __forceinline__ void LoadX8(const float* x, bool aligned, int64_t left,
                                       float (&values)[8]) {
  if (aligned && left >= 8) {
    const float4 lo = reinterpret_cast<const float4*>(x)[0];
    const float4 hi = reinterpret_cast<const float4*>(x)[1];
    values[0] = lo.x, values[1] = lo.y, values[2] = lo.z, values[3] = lo.w;
    values[4] = hi.x, values[5] = hi.y, values[6] = hi.z, values[7] = hi.w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = i < left ? x[i] : 0.0f;
  }
}

// The nearest that f16 has room for. What is no number, or infinite, stays: an answer made of it
// has to be seen, and fails its request.
__device__ __forceinline__ float ClipToF16(float x) {
  constexpr float kLargest = 65504.0f;
  const float magnitude = fabsf(x);
  return magnitude > kLargest && magnitude < INFINITY ? copysignf(kLargest, x) : x;
}

template <class T>
__device__ __forceinline__ uint32_t PackInRange(float lo, float hi) {
  if constexpr (std::is_same_v<T, F16>) return PackPair<T>(ClipToF16(lo), ClipToF16(hi));
  return PackPair<T>(lo, hi);
}

// One comparison for all of them, as long as nothing is beyond f16's range.
template <class T>
__device__ __forceinline__ uint4 PackUnit(const float (&values)[8]) {
  if constexpr (std::is_same_v<T, F16>) {
    float largest = 0.0f;
#pragma unroll
    for (const float value : values) largest = fmaxf(largest, fabsf(value));
    if (largest > 65504.0f) {
      return make_uint4(PackInRange<T>(values[0], values[1]), PackInRange<T>(values[2], values[3]),
                        PackInRange<T>(values[4], values[5]), PackInRange<T>(values[6], values[7]));
    }
  }
  return make_uint4(PackPair<T>(values[0], values[1]), PackPair<T>(values[2], values[3]),
                    PackPair<T>(values[4], values[5]), PackPair<T>(values[6], values[7]));
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LOAD_ACTIVATIONS_H_
