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

// Eight elements of a query in T, F16 or BF16, from 32 bytes, aligned to 16. What is no finite
// number in T becomes NaN, as in keys (RopeAppendArgs), and so does the row's output: of an
// infinity all scores might be -infinity, which is that of a key that the row does not see, and the
// output zeros.
//
// One comparison for all of them, as long as they are in range.
template <class T>
__device__ __forceinline__ uint4 PackQueries(const float* from) {
  constexpr float kBeyond = std::is_same_v<T, F16> ? 65520.0f : 0x1.ffp127f;  // rounds to infinity
  const float4 lo = reinterpret_cast<const float4*>(from)[0];
  const float4 hi = reinterpret_cast<const float4*>(from)[1];
  float q[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(q[i]));
  if (largest >= kBeyond) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (fabsf(q[i]) >= kBeyond) q[i] = __int_as_float(0x7fffffff);
    }
  }
  return make_uint4(PackPair<T>(q[0], q[1]), PackPair<T>(q[2], q[3]), PackPair<T>(q[4], q[5]),
                    PackPair<T>(q[6], q[7]));
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_QUERIES_H_
