#ifndef REFRAIN_KERNELS_CUDA_LOGITS_ROW_H_
#define REFRAIN_KERNELS_CUDA_LOGITS_ROW_H_

#include <climits>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/sampling.h"

// What kernels do with one row of logits, by all threads of a block: the best token, sums of
// probabilities, the best so many. Included by .cu files only. Results do not depend on how many
// threads there are, nor on the order in which they come.

namespace refrain::kernels::cuda {

using Mass = unsigned long long;  // what atomicAdd takes

constexpr float kMassOfOne = 0x1p44f;  // times kMaxSamplingVocab still fits
constexpr int kMaxWarps = kMaxSamplingThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// A scaled logit is never above 0, so its magnitude's bits order candidates from best (0) to worst.
// They are searched from the top: 8 bins an octave first, then what is inside of one.
constexpr int kLevels = 3;
constexpr int kBins = 1 << 11;
__device__ constexpr int LevelShift(int level) { return level == 0 ? 20 : level == 1 ? 10 : 0; }

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

// Candidates up to here, best first; of equal ones those with the lowest ids.
struct Cut {
  uint32_t magnitude = 0x7f7fffffu;
  int last_index = INT_MAX;
};

struct RowView {
  const float* logits;
  int vocab;
  float best;
  float inverse_temperature;
  float least;

  // Whether a token with this logit is a candidate, and the bits of its magnitude.
  __device__ bool Candidate(float logit, uint32_t& magnitude) const {
    const float scaled = (logit - best) * inverse_temperature;
    magnitude = __float_as_uint(scaled) & 0x7fffffffu;
    return scaled >= least;  // false for NaN
  }
  // The same of token i, whose logit it is, and whether the cut leaves it.
  __device__ bool Inside(int i, float logit, const Cut& cut, uint32_t& magnitude) const {
    if (!Candidate(logit, magnitude)) return false;
    return magnitude < cut.magnitude || (magnitude == cut.magnitude && i <= cut.last_index);
  }
  __device__ bool Inside(int i, const Cut& cut, uint32_t& magnitude) const {
    return Inside(i, logits[i], cut, magnitude);
  }
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

__device__ __forceinline__ Mass MassOf(uint32_t magnitude) {
  const float e = expf(-__uint_as_float(magnitude));
  return static_cast<Mass>(e * kMassOfOne);
}

struct CountOne {
  __device__ unsigned operator()(uint32_t) const { return 1; }
};
struct CountMass {
  __device__ Mass operator()(uint32_t magnitude) const { return MassOf(magnitude); }
};

__device__ __forceinline__ void AddToBin(LogitsShared& shared, uint32_t bin, unsigned count) {
  atomicAdd(&shared.low[bin], count);  // there are no 2^32 tokens
}
// Whoever makes the lower half overflow carries: the sum does not depend on the order.
__device__ __forceinline__ void AddToBin(LogitsShared& shared, uint32_t bin, Mass weight) {
  const auto low = static_cast<unsigned>(weight);
  auto high = static_cast<unsigned>(weight >> 32);
  if (low != 0 && atomicAdd(&shared.low[bin], low) > ~low) ++high;
  if (high != 0) atomicAdd(&shared.high[bin], high);
}

__device__ __forceinline__ Mass BinSum(const LogitsShared& shared, int bin) {
  return static_cast<Mass>(shared.high[bin]) << 32 | shared.low[bin];
}

__device__ __forceinline__ Mass WarpInclusiveSum(Mass value, int lane) {
  for (int step = 1; step < 32; step *= 2) {
    const Mass left = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += left;
  }
  return value;
}

// One warp: the first of `count` bins at which the running sum reaches `target` (>= 1), with the
// sum before it. No such bin: -1.
inline __device__ void FindBin(LogitsShared& shared, int count, Mass target) {
  const int lane = threadIdx.x;
  const int each = count / 32;
  Mass own = 0;
  for (int i = 0; i < each; ++i) own += BinSum(shared, lane * each + i);
  const Mass upto = WarpInclusiveSum(own, lane);
  Mass before = upto - own;
  if (lane == 31) shared.total_mass = upto;
  if (lane == 0) shared.found = -1;
  __syncwarp();
  if (before >= target || upto < target) return;
  for (int i = 0; i < each; ++i) {
    const Mass bin = BinSum(shared, lane * each + i);
    if (before + bin >= target) {
      shared.found = lane * each + i;
      shared.found_mass = before;
      return;
    }
    before += bin;
  }
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

// Adds the weights of the candidates inside `cut` whose magnitude begins with `prefix`, by the bits
// of this level.
template <class Weight>
__device__ void FillBins(LogitsShared& shared, const RowView& row, const Cut& cut, int level,
                         uint32_t prefix, Weight weight) {
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) shared.low[i] = shared.high[i] = 0;
  __syncthreads();
  const int shift = LevelShift(level);
  const int above = level == 0 ? 31 : LevelShift(level - 1);
  ForEachLogit(row.logits, row.vocab, [&](int i, float logit) {
    uint32_t magnitude;
    if (!row.Inside(i, logit, cut, magnitude) || magnitude >> above != prefix) return;
    const uint32_t bin = (magnitude >> shift) & ((1u << (above - shift)) - 1);
    AddToBin(shared, bin, weight(magnitude));
  });
  __syncthreads();
}

// The least cut inside `cut` whose weights reach target(all weights inside `cut`); `cut` itself
// where all of them do not. target returns at least 1.
template <class Weight, class Target>
__device__ Cut Narrow(LogitsShared& shared, const RowView& row, const Cut& cut, Weight weight,
                      Target target) {
  uint32_t prefix = 0;
  Mass before = 0, wanted = 0;
  for (int level = 0; level < kLevels; ++level) {
    FillBins(shared, row, cut, level, prefix, weight);
    if (threadIdx.x < 32) {
      if (level == 0) {
        FindBin(shared, kBins, ~Mass{0});  // for the total
        __syncwarp();
        wanted = target(shared.total_mass);
      }
      FindBin(shared, kBins, wanted - before);
    }
    __syncthreads();
    if (level == 0) wanted = target(shared.total_mass);
    const int bin = shared.found;
    const Mass skipped = shared.found_mass;
    __syncthreads();
    if (bin < 0) return cut;
    before += skipped;
    prefix = prefix << (level == 0 ? 11 : 10) | static_cast<uint32_t>(bin);
  }
  Cut narrow;
  narrow.magnitude = prefix;
  // Of candidates that are equal, as many as are needed, in order of id.
  const Mass each = weight(prefix);
  const Mass needed = (wanted - before + each - 1) / each;
  const int last = FindToken(shared, row.vocab, needed - 1, [&](int i) -> Mass {
    uint32_t magnitude;
    return row.Inside(i, cut, magnitude) && magnitude == prefix ? 1 : 0;
  });
  if (last >= 0) narrow.last_index = last;
  return narrow;
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

// All threads of the block: the sum of weight(i) over all tokens.
template <class Weight>
__device__ Mass SumOfWeights(LogitsShared& shared, int vocab, Weight weight) {
  // Beyond everything: for the sums alone, which the warps leave behind.
  (void)FindToken(shared, vocab, ~Mass{0}, weight);
  Mass total = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) total += shared.warp_mass[i];
  __syncthreads();
  return total;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LOGITS_ROW_H_
