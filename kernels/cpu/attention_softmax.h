#ifndef REFRAIN_KERNELS_CPU_ATTENTION_SOFTMAX_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_SOFTMAX_H_

#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/simd_math.h"

// The middle pass of a segment, over a level's vector type S. Include only from files that are
// compiled for one level.
namespace refrain::kernels::cpu {

// How the weights of a row are kept: as f32, where the scores were.
template <class S>
struct WeightsAsF32 {
  using F = typename S::F;

  // The weights of 4 vectors of keys, which are at scores + i. Adds them to the row's sums.
  static void Put(float* scores, int i, const F (&weights)[4], F (&sums)[4]) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      S::Store(scores + i + v * S::kLanes, weights[v]);
      sums[v] = S::Add(sums[v], weights[v]);
    }
  }

  static void Clear(float* scores, int begin, int end) {
    for (int i = begin; i < end; ++i) scores[i] = 0.0f;
  }

  static F Power(F x) { return Exp2<S>(x); }
};

// W: how weights are kept, with the functions of WeightsAsF32.
template <class S, class W = WeightsAsF32<S>>
class AttentionSoftmax {
 public:
  // Scores to weights 2^(s - m), as W keeps them; weights of unseen keys in [begin, hi) become 0. A
  // score that is no number makes n, and so the row's output, none.
  static void Run(const SegmentArgs& a) {
    for (int r = 0; r < a.num_rows; ++r) {
      const int begin = a.begin - a.segment_begin;
      const int limit = Least(a.row_limits[r], a.hi) - a.segment_begin;
      const int hi = a.hi - a.segment_begin;
      float* const scores = a.scores + r * static_cast<int64_t>(kScoreStride);
      a.states[r] = limit <= begin ? SoftmaxState{MinusInfinity(), 0.0f}
                                   : SoftmaxRow(a, r, begin, limit, scores);
      if (!(a.states[r].n > 0.0f)) {
        W::Clear(scores, begin, hi);
        continue;
      }
      W::Clear(scores, DivideUp(limit, kSoftmaxKeys) * kSoftmaxKeys, hi);
    }
  }

 private:
  using F = typename S::F;
  static constexpr int L = S::kLanes;
  // The rows are gone over this many vectors at once, counted from the segment's begin.
  static constexpr int kSoftmaxKeys = 4 * L;

  static bool AnyNaN(const float* scores, int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (scores[i] != scores[i]) return true;
    }
    return false;
  }

  static SoftmaxState SoftmaxRow(const SegmentArgs& a, int row, int begin, int limit,
                                 float* scores) {
    // Whole groups of vectors: what is around the row's keys is -infinity.
    const int first = begin / kSoftmaxKeys * kSoftmaxKeys;
    const int last = DivideUp(limit, kSoftmaxKeys) * kSoftmaxKeys;
    for (int i = first; i < begin; ++i) scores[i] = MinusInfinity();
    for (int i = limit; i < last; ++i) scores[i] = MinusInfinity();
    if (a.row_oldest != nullptr) {
      const F unseen = S::Set1(MinusInfinity());
      for (int i = first; i < last; i += L) {
        S::Store(scores + i,
                 S::WhereAbove(a.positions + i, a.row_oldest[row], S::Load(scores + i), unseen));
      }
    }
    F max[4];
    for (int v = 0; v < 4; ++v) max[v] = S::Load(scores + first + v * L);
    for (int i = first + kSoftmaxKeys; i < last; i += kSoftmaxKeys) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) max[v] = S::Max(max[v], S::Load(scores + i + v * L));
    }
    const float m = S::ReduceMax(S::Max(S::Max(max[0], max[1]), S::Max(max[2], max[3])));
    // Nothing is seen; or there are NaN, behind which the comparisons above lose what was greater.
    if (m == MinusInfinity()) return {m, AnyNaN(scores, begin, limit) ? __builtin_nanf("") : 0.0f};

    const F shift = S::Set1(m);
    F sum[4] = {S::Zero(), S::Zero(), S::Zero(), S::Zero()};
    for (int i = first; i < last; i += kSoftmaxKeys) {
      F weights[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        weights[v] = W::Power(S::Sub(S::Load(scores + i + v * L), shift));
      }
      W::Put(scores, i, weights, sum);
    }
    return {m, S::ReduceAdd(S::Add(S::Add(sum[0], sum[1]), S::Add(sum[2], sum[3])))};
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_SOFTMAX_H_
