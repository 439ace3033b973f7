#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_QUERIES_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_QUERIES_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"

// Queries as the matrix instructions of the attention kernels take them. Included by .cu files
// only.
namespace refrain::kernels::cuda {

// Eight elements of a query in T, F16 or BF16, from 32 bytes, aligned to 16. What T has no room for
// becomes the greatest that it has, by which a row still finds the keys that it looks at, as one in
// f32 does. What is infinite becomes NaN, as the row's output has to: of an infinity all scores
// might be -infinity, which is that of a key that the row does not see, and the output zeros.
//
// One comparison for all of them, as long as they are in range.
template <class T>
__device__ __forceinline__ uint4 PackQueries(const float* from) {
  constexpr float kLargest = std::is_same_v<T, F16> ? 65504.0f : 0x1.fep127f;
  const float4 lo = reinterpret_cast<const float4*>(from)[0];
  const float4 hi = reinterpret_cast<const float4*>(from)[1];
  float q[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(q[i]));
  if (largest > kLargest) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (fabsf(q[i]) == INFINITY) {
        q[i] -= q[i];
      } else if (fabsf(q[i]) > kLargest) {
        q[i] = copysignf(kLargest, q[i]);
      }
    }
  }
  return make_uint4(PackPair<T>(q[0], q[1]), PackPair<T>(q[2], q[3]), PackPair<T>(q[4], q[5]),
                    PackPair<T>(q[6], q[7]));
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_QUERIES_H_
