#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_STATE_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_STATE_H_

#include <cstdint>

#include "kernels/cuda/hopper_attention_queries.h"

// The softmax state of a tile of many queries, as the threads of one warpgroup hold it. A thread
// holds rows 16 w + g and 16 w + g + 8 (w warp of the warpgroup, g = lane / 4) and columns 8 i + 2
// t and 8 i + 2 t + 1 (t = lane % 4) of S and O: nothing of a row leaves its quad. Device code
// only.

namespace refrain::kernels::cuda {

template <class Shape>
class ManyQueryState {
 public:
  // O is cut along the head dimension into products of at most 128 columns.
  static constexpr int kOutN = Shape::kHeadDim <= 128 ? Shape::kHeadDim : Shape::kHeadDim / 2;
  static constexpr int kOuts = Shape::kHeadDim / kOutN;
  static_assert(kOutN % Shape::kPanel == 0);

  __device__ void Clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m[half] = MinusInfinity();
      n[half] = 0.0f;
    }
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int i = 0; i < kOutN / 2; ++i) o[out][i] = 0.0f;
    }
  }

  // Raises the state's maxima; o is scaled with them.
  __device__ void ToWeights(const float (&s)[kBlockKeys / 2], float scale,
                            uint32_t (&p)[kBlockKeys / 16][4]) {
    float factor[2];
    RaiseMaxima(s, scale, factor);
    MakeWeights(s, scale, p);
    // Maxima rise seldom.
    if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f) == 0) return;
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int i = 0; i < kOutN / 2; ++i) o[out][i] *= factor[i / 2 % 2];
    }
  }

  // The row of `half` to where it goes; the last that is done with it.
  __device__ void Write(int half, const StateTarget& target, int lane) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      n[half] += __shfl_xor_sync(0xffffffffu, n[half], lanes);
    }
    if (target.o == nullptr) return;
    const float factor = FactorOf(target, n[half]);
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int i = 0; i < kOutN / 8; ++i) {
        const int dim = out * kOutN + 8 * i + lane % 4 * 2;
        *reinterpret_cast<float2*>(target.o + dim) =
            make_float2(o[out][4 * i + 2 * half] * factor, o[out][4 * i + 2 * half + 1] * factor);
      }
    }
    if (target.mn != nullptr && lane % 4 == 0) {
      target.mn[0] = m[half];
      target.mn[1] = n[half];
    }
  }

  float m[2];
  float n[2];  // of the thread's own keys until Write
  float o[kOuts][kOutN / 2];

 private:
  __device__ void RaiseMaxima(const float (&s)[kBlockKeys / 2], float scale, float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = MinusInfinity();
#pragma unroll
      for (int i = 0; i < kBlockKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          highest = fmaxf(highest, s[4 * i + 2 * half + e]);
        }
      }
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, lanes));
      }
      highest *= scale;
      highest = m[half] > highest ? m[half] : highest;
      factor[half] = highest > MinusInfinity() ? ExpTwo(m[half] - highest) : 1.0f;
      m[half] = highest;
      n[half] *= factor[half];
    }
  }

  // P as the A operand of the second product: where S came out is where P goes in.
  __device__ void MakeWeights(const float (&s)[kBlockKeys / 2], float scale,
                              uint32_t (&p)[kBlockKeys / 16][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float top = m[half] > MinusInfinity() ? m[half] : 0.0f;  // all scores are -inf then
#pragma unroll
      for (int i = 0; i < kBlockKeys / 8; ++i) {
        const float p0 = ExpTwo(fmaf(s[4 * i + 2 * half], scale, -top));
        const float p1 = ExpTwo(fmaf(s[4 * i + 2 * half + 1], scale, -top));
        n[half] += p0 + p1;
        p[i / 2][i % 2 * 2 + half] = PackPair<typename Shape::Element>(p0, p1);
      }
    }
  }
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_STATE_H_
