#ifndef REFRAIN_KERNELS_CUDA_BEST_TOKENS_H_
#define REFRAIN_KERNELS_CUDA_BEST_TOKENS_H_

#include <climits>
#include <cstdint>

#include "kernels/cuda/logits_row.h"

// The best tokens of a row of logits, so many of them or so much of their probability, without
// sorting: by all threads of a block, as logits_row.h.
//
// A row orders its candidates by keys, the best one's the least. Row::kKeyBits (31 or 32) of them
// are looked at, from the top: 11 bits first, then what is inside of one bin, and of one bin of
// that. Row::Candidate(logit, key) says whether a token with this logit is a candidate at all.

namespace refrain::kernels::cuda {

constexpr int kLevels = 3;

// Candidates up to here; of equal ones those with the lowest ids.
struct Cut {
  uint32_t key = UINT32_MAX;
  int last_index = INT_MAX;

  __device__ bool Leaves(int i, uint32_t candidate) const {
    return candidate < key || (candidate == key && i <= last_index);
  }
};

struct CountOne {
  __device__ unsigned operator()(uint32_t) const { return 1; }
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

// The bits of keys that a level looks at, and those below them.
template <class Row>
__device__ constexpr int BitsBelow(int level) {
  return level == 0 ? Row::kKeyBits - 11 : level == 1 ? 10 : 0;
}
template <class Row>
__device__ constexpr int BitsOf(int level) {
  return level == 0 ? 11 : BitsBelow<Row>(level - 1) - BitsBelow<Row>(level);
}

// Adds the weights of the candidates inside `cut` whose key begins with `prefix`, by the bits of
// this level.
template <class Row, class Weight>
__device__ void FillBins(LogitsShared& shared, const Row& row, const Cut& cut, int level,
                         uint32_t prefix, Weight weight) {
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) shared.low[i] = shared.high[i] = 0;
  __syncthreads();
  const int shift = BitsBelow<Row>(level), bits = BitsOf<Row>(level);
  ForEachLogit(row.logits, row.vocab, [&](int i, float logit) {
    uint32_t key;
    if (!row.Candidate(logit, key) || !cut.Leaves(i, key)) return;
    if (level > 0 && key >> (shift + bits) != prefix) return;
    AddToBin(shared, (key >> shift) & ((1u << bits) - 1), weight(key));
  });
  __syncthreads();
}

// The least cut inside `cut` whose weights reach target(all weights inside `cut`); `cut` itself
// where all of them do not. target returns at least 1.
template <class Row, class Weight, class Target>
__device__ Cut Narrow(LogitsShared& shared, const Row& row, const Cut& cut, Weight weight,
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
        __syncwarp();  // the next one writes it again
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
    prefix = prefix << BitsOf<Row>(level) | static_cast<uint32_t>(bin);
  }
  Cut narrow;
  narrow.key = prefix;
  // Of candidates that are equal, as many as are needed, in order of id.
  const Mass each = weight(prefix);
  const Mass needed = (wanted - before + each - 1) / each;
  const int last = FindToken(shared, row.vocab, needed - 1, [&](int i) -> Mass {
    uint32_t key;
    return row.Candidate(row.logits[i], key) && cut.Leaves(i, key) && key == prefix ? 1 : 0;
  });
  if (last >= 0) narrow.last_index = last;
  return narrow;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_BEST_TOKENS_H_
