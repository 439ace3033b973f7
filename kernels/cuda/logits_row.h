#ifndef REFRAIN_KERNELS_CUDA_LOGITS_ROW_H_
#define REFRAIN_KERNELS_CUDA_LOGITS_ROW_H_

#include <climits>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/sampling.h"

// What kernels do with one row of logits, by all threads of a block: the best token, sums, the
// token at which a sum is reached. Included by .cu files only. Results do not depend on how many
// threads there are, nor on the order in which they come.

namespace refrain::kernels::cuda {

using Mass = unsigned long long;  // what atomicAdd takes

constexpr float kMassOfOne = 0x1p44f;  // times kMaxSamplingVocab still fits
constexpr int kMaxWarps = kMaxSamplingThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kBins = 1 << 11;

struct LogitsShared {
  // Of each bin's sum the lower and the upper half: shared memory adds 32 bits by itself, while 64
  // bits are a loop of compare-and-swap, and most candidates meet in a few bins.
  unsigned low[kBins], high[kBins];
  Mass warp_mass[kMaxWarps];
  Mass found_mass;  // of what lies before the bin or token found
  Mass total_mass;
  float warp_best[kMaxWarps];
  int warp_index[kMaxWarps];
  int found;
};

// All threads of the block: use(i, logits[i]) once for every token, in an order that does not
// matter; four at a time where the row is aligned.
template <class Use>
__device__ __forceinline__ void ForEachLogit(const float* logits, int vocab, Use use) {
  int begin = 0;
  if (reinterpret_cast<uintptr_t>(logits) % 16 == 0) {
    begin = vocab / 4 * 4;
    for (int i = 4 * static_cast<int>(threadIdx.x); i < begin;
         i += 4 * static_cast<int>(blockDim.x)) {
      const float4 four = *reinterpret_cast<const float4*>(logits + i);
      use(i, four.x);
      use(i + 1, four.y);
      use(i + 2, four.z);
      use(i + 3, four.w);
    }
  }
  for (int i = begin + static_cast<int>(threadIdx.x); i < vocab;
       i += static_cast<int>(blockDim.x)) {
    use(i, logits[i]);
  }
}

__device__ __forceinline__ Mass WarpInclusiveSum(Mass value, int lane) {
  for (int step = 1; step < 32; step *= 2) {
    const Mass left = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += left;
  }
  return value;
}

// All threads of the block: the sum of their values.
inline __device__ Mass BlockSum(LogitsShared& shared, Mass value) {
  const Mass upto = WarpInclusiveSum(value, static_cast<int>(threadIdx.x) % 32);
  if (threadIdx.x % 32 == 31) shared.warp_mass[threadIdx.x / 32] = upto;
  __syncthreads();
  Mass total = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) total += shared.warp_mass[i];
  __syncthreads();
  return total;
}

// In order of id: the first token at which the sum of weight(i) exceeds `target`; -1 where there is
// none. Every warp sums a stretch of ids, the one that holds the answer walks it again.
template <class Weight>
__device__ int FindToken(LogitsShared& shared, int vocab, Mass target, Weight weight) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int stretch = (vocab + warps * 32 - 1) / (warps * 32) * 32;
  const int begin = warp * stretch;
  Mass own = 0;
  for (int i = begin + lane; i < begin + stretch && i < vocab; i += 32) own += weight(i);
  own = WarpInclusiveSum(own, lane);
  if (lane == 31) shared.warp_mass[warp] = own;
  if (threadIdx.x == 0) shared.found = -1;
  __syncthreads();
  Mass before = 0;
  for (int i = 0; i < warp; ++i) before += shared.warp_mass[i];
  if (before <= target && before + shared.warp_mass[warp] > target) {
    for (int base = begin; base < begin + stretch; base += 32) {
      const int i = base + lane;
      const Mass upto = before + WarpInclusiveSum(i < vocab ? weight(i) : 0, lane);
      const unsigned beyond = __ballot_sync(kAllLanes, upto > target);
      if (beyond != 0) {
        if (lane == 0) shared.found = base + __ffs(static_cast<int>(beyond)) - 1;
        break;
      }
      before = __shfl_sync(kAllLanes, upto, 31);
    }
  }
  __syncthreads();
  const int found = shared.found;
  __syncthreads();
  return found;
}

// The greatest logit, the lowest id of equal ones; id -1 where it is infinite, or all are NaN.
inline __device__ float FindBest(LogitsShared& shared, const float* logits, int vocab, int& index) {
  float best = -INFINITY;
  index = INT_MAX;
  ForEachLogit(logits, vocab, [&](int i, float logit) {
    if (logit > best || (logit == best && i < index)) {
      best = logit;
      index = i;
    }
  });
  const auto take = [&](float other, int other_index) {
    if (other > best || (other == best && other_index < index)) {
      best = other;
      index = other_index;
    }
  };
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, best, lanes);
    const int other_index = __shfl_xor_sync(kAllLanes, index, lanes);
    take(other, other_index);
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) {
    shared.warp_best[warp] = best;
    shared.warp_index[warp] = index;
  }
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
    take(shared.warp_best[i], shared.warp_index[i]);
  }
  __syncthreads();
  if (best == -INFINITY || best == INFINITY) index = -1;
  return best;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LOGITS_ROW_H_
