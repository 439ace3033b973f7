#ifndef REFRAIN_KERNELS_CUDA_MMA_ATTENTION_STATE_H_
#define REFRAIN_KERNELS_CUDA_MMA_ATTENTION_STATE_H_

#include <cstdint>

#include "kernels/cuda/attention_states.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/mma_attention_layout.h"

// Softmax states in registers for the mma.sync attention kernel (chunk_attention_mma_kernel.h).
namespace refrain::kernels::cuda {

// A warp's states of 16 queries: each thread has parts of two, those of rows lane / 4 and lane / 4
// + 8 of an accumulator. Scores come as accumulators of 8 keys, kScoreTiles of them at a time.
template <class T, int kHeadDim, int kScoreTiles>
class MmaState {
  using Layout = MmaLayout<kHeadDim>;

 public:
  static constexpr int kOutputTiles = kHeadDim / 8;

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int tile = 0; tile < kOutputTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[tile][i] = 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m_[half] = total_m_[half] = -INFINITY;
      n_[half] = total_n_[half] = 0.0f;
    }
  }

  // o of the two elements from 8 `tile` + 2 (lane % 4) on.
  __device__ __forceinline__ float2 o(int half, int tile) const {
    return make_float2(o_[tile][2 * half], o_[tile][2 * half + 1]);
  }
  __device__ __forceinline__ float m(int half) const { return m_[half]; }
  __device__ __forceinline__ float n(int half) const { return n_[half]; }

  // Scores to weights; the state moves to the new maxima.
  __device__ __forceinline__ void Weigh(float scale, float (&s)[kScoreTiles][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = -INFINITY;
#pragma unroll
      for (int tile = 0; tile < kScoreTiles; ++tile) {
        max = fmaxf(max, fmaxf(s[tile][2 * half], s[tile][2 * half + 1]));
      }
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      max = fmaxf(max * scale, m_[half]);
      const float base = max == -INFINITY ? 0.0f : max;
      const float rescale = ExpTwo(m_[half] - base);
      m_[half] = max;
      float sum = 0.0f;
#pragma unroll
      for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[tile][i] = ExpTwo(fmaf(s[tile][i], scale, -base));
          sum += s[tile][i];
        }
      }
      n_[half] = fmaf(n_[half], rescale, sum);
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        o_[tile][2 * half] *= rescale;
        o_[tile][2 * half + 1] *= rescale;
      }
    }
  }

  // o += weights v.
  __device__ __forceinline__ void AddValues(const uint16_t* values, int first_row,
                                            const float (&s)[kScoreTiles][4]) {
    // Transposed matrices: (keys 0-7, dims 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
    const int lane = threadIdx.x % 32;
    const int matrix = lane / 8, r = lane % 8;
    const int row = first_row + matrix % 2 * 8 + r;
#pragma unroll
    for (int step = 0; step < kScoreTiles / 2; ++step) {
      const float(&lo)[4] = s[2 * step];
      const float(&hi)[4] = s[2 * step + 1];
      const uint32_t a[4] = {PackPair<T>(lo[0], lo[1]), PackPair<T>(lo[2], lo[3]),
                             PackPair<T>(hi[0], hi[1]), PackPair<T>(hi[2], hi[3])};
#pragma unroll
      for (int pair = 0; pair < kOutputTiles / 2; ++pair) {
        uint32_t v[4];
        LoadMatrixX4Transposed(v, values + Layout::UnitAt(row + 16 * step, 2 * pair + matrix / 2));
        MmaM16N8K16<T>(o_[2 * pair], a, {v[0], v[1]});
        MmaM16N8K16<T>(o_[2 * pair + 1], a, {v[2], v[3]});
      }
    }
  }

  // n of a row is spread over four lanes.
  __device__ __forceinline__ void GatherSums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      n_[half] += __shfl_xor_sync(~0u, n_[half], 1);
      n_[half] += __shfl_xor_sync(~0u, n_[half], 2);
    }
  }

  // The segment's state goes to the right of those before it, whose o is in `totals`.
  __device__ __forceinline__ void EndSegment(float* totals) {
    GatherSums();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float left, right;
      MergeStates(total_m_[half], total_n_[half], m_[half], n_[half], left, right);
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& total = totals[(4 * tile + i) * kMmaThreads];
          total = MergeElement(total, o_[tile][i], left, right);
          o_[tile][i] = 0.0f;
        }
      }
      m_[half] = -INFINITY;
      n_[half] = 0.0f;
    }
  }

  __device__ __forceinline__ void TakeTotals(const float* totals) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m_[half] = total_m_[half];
      n_[half] = total_n_[half];
    }
#pragma unroll
    for (int i = 0; i < 4 * kOutputTiles; ++i) o_[i / 4][i % 4] = totals[i * kMmaThreads];
  }

  __device__ static __forceinline__ void ClearTotals(float* totals) {
#pragma unroll
    for (int i = 0; i < 4 * kOutputTiles; ++i) totals[i * kMmaThreads] = 0.0f;
  }

 private:
  float o_[kOutputTiles][4];
  float m_[2], n_[2];
  float total_m_[2], total_n_[2];
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_MMA_ATTENTION_STATE_H_
