#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_STATE_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_STATE_H_

#include <cstdint>

#include "kernels/cuda/hopper_attention_queries.h"

// The softmax state of a tile of few queries, as the threads of one warpgroup hold it. A thread
// has, of S^T and O^T, rows 16 w + g and 16 w + g + 8 and columns 8 i + 2 t and 8 i + 2 t + 1 (w
// warp of the warpgroup, g = lane / 4, t = lane % 4). Column c = 2 i + e of its own is query
// 8 i + 2 t + e, in S^T and in O^T alike: maxima and factors stay in registers. Device code only.

namespace refrain::kernels::cuda {

template <class Shape, int kN>
class FewQueryState {
 public:
  static constexpr int kColumns = kN / 4;  // of one thread

  __device__ FewQueryState(HopperShared<Shape>& shared, int group, int warp, int lane)
      : shared_(shared), group_(group), warp_(warp), lane_(lane) {}

  __device__ int Query(int c) const { return c / 2 * 8 + lane_ % 4 * 2 + c % 2; }

  __device__ void Clear() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      m[c] = MinusInfinity();
      n[c] = 0.0f;
    }
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) o[b][i] = 0.0f;
    }
  }

  // The block's maxima over all 64 keys, times `scale`, into m; `factor` is what the state so far
  // is scaled by.
  __device__ void RaiseMaxima(const float (&s)[kN / 2], float scale, float (&factor)[kColumns]) {
    float(&columns)[4][kFewQueries] = shared_.columns[group_];
    float top[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int i = c / 2 * 4 + c % 2;
      top[c] = fmaxf(s[i], s[i + 2]);  // of a NaN the other: its weight is one still
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        top[c] = fmaxf(top[c], __shfl_xor_sync(0xffffffffu, top[c], lanes));
      }
    }
    if (lane_ < 4) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) columns[warp_][Query(c)] = top[c];
    }
    NamedBarrierSync(kWarpgroupBarrier + group_, kWarpgroupThreads);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float highest = m[c];
#pragma unroll
      for (int warp = 0; warp < 4; ++warp) {
        highest = fmaxf(highest, columns[warp][Query(c)] * scale);
      }
      factor[c] = highest > MinusInfinity() ? ExpTwo(m[c] - highest) : 1.0f;
      m[c] = highest;
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) n[c] *= factor[c];
  }

  // n becomes the sum over all keys of the warpgroup.
  __device__ void SumColumns() {
    float(&columns)[4][kFewQueries] = shared_.columns[group_];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        n[c] += __shfl_xor_sync(0xffffffffu, n[c], lanes);
      }
    }
    if (lane_ < 4) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) columns[warp_][Query(c)] = n[c];
    }
    NamedBarrierSync(kWarpgroupBarrier + group_, kWarpgroupThreads);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      n[c] = (columns[0][Query(c)] + columns[1][Query(c)]) +
             (columns[2][Query(c)] + columns[3][Query(c)]);
    }
  }

  // The state of the second warpgroup goes into that of the first; the same thread of both holds
  // the same elements.
  __device__ void JoinWarpgroups() {
    auto* const handed = reinterpret_cast<float*>(shared_.queries + Shape::kFewQueryBytes) +
                         threadIdx.x % kWarpgroupThreads;
    if (group_ == 1) {
      if (lane_ < 4 && warp_ == 0) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          shared_.handed_m[Query(c)] = m[c];
          shared_.handed_n[Query(c)] = n[c];
        }
      }
#pragma unroll
      for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) handed[(b * kN / 2 + i) * kWarpgroupThreads] = o[b][i];
      }
    }
    NamedBarrierSync(kComputeBarrier, kComputeThreads);
    if (group_ == 1) return;
    float left[kColumns], right[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float other_m = shared_.handed_m[Query(c)], other_n = shared_.handed_n[Query(c)];
      const float top = other_m > m[c] ? other_m : m[c];
      const bool none = top == MinusInfinity();
      left[c] = none ? 1.0f : ExpTwo(m[c] - top);
      right[c] = none ? 0.0f : ExpTwo(other_m - top);
      n[c] = n[c] * left[c] + other_n * right[c];
      m[c] = top;
    }
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int c = i / 4 * 2 + i % 2;
        o[b][i] = o[b][i] * left[c] + handed[(b * kN / 2 + i) * kWarpgroupThreads] * right[c];
      }
    }
  }

  __device__ void Write(const ChunkAttentionLaunch& args, const TileHeader& header) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const StateTarget target = TargetOf<Shape>(args, PlaceOfQuery(args, header, Query(c)));
      if (target.o == nullptr) continue;
      const float factor = FactorOf(target, n[c]);
#pragma unroll
      for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int dim = b * 64 + 16 * warp_ + lane_ / 4 + 8 * half;
          if (dim < Shape::kHeadDim) {
            target.o[dim] = o[b][c / 2 * 4 + half * 2 + c % 2] * factor;
          }
        }
      }
      if (target.mn != nullptr && lane_ < 4 && warp_ == 0) {
        target.mn[0] = m[c];
        target.mn[1] = n[c];
      }
    }
  }

  float m[kColumns];
  float n[kColumns];  // of the thread's own keys until SumColumns
  float o[Shape::kDimBlocks][kN / 2];

 private:
  HopperShared<Shape>& shared_;
  const int group_, warp_, lane_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_STATE_H_
