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

// The scores of a segment's rows.
template <class S>
class ScoreRows {
 public:
  // The rows are gone over this many vectors at once, counted from the segment's begin.
  static constexpr int kKeysAtOnce = 4 * S::kLanes;

  // The keys that a row sees, from the segment's begin.
  struct Keys {
    int begin, end;
    bool none() const { return end <= begin; }
    // Whole groups of vectors.
    int first() const { return begin / kKeysAtOnce * kKeysAtOnce; }
    int last() const { return DivideUp(end, kKeysAtOnce) * kKeysAtOnce; }
  };
  static Keys KeysOf(const SegmentArgs& a, int row) {
    return {a.begin - a.segment_begin, Least(a.row_limits[row], a.hi) - a.segment_begin};
  }
  static float* Scores(const SegmentArgs& a, int row) {
    return a.scores + row * static_cast<int64_t>(kScoreStride);
  }

  // What is around the keys of `row` in their groups of vectors, or outside its window, becomes
  // -infinity.
  static void HideUnseen(const SegmentArgs& a, int row, const Keys& keys) {
    float* const scores = Scores(a, row);
    for (int i = keys.first(); i < keys.begin; ++i) scores[i] = MinusInfinity();
    for (int i = keys.end; i < keys.last(); ++i) scores[i] = MinusInfinity();
    if (a.row_oldest == nullptr) return;
    const auto unseen = S::Set1(MinusInfinity());
    for (int i = keys.first(); i < keys.last(); i += S::kLanes) {
      S::Store(scores + i,
               S::WhereAbove(a.positions + i, a.row_oldest[row], S::Load(scores + i), unseen));
    }
  }

  static bool AnyNaN(const float* scores, int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (scores[i] != scores[i]) return true;
    }
    return false;
  }
};

// W: how weights are kept, with the functions of WeightsAsF32.
template <class S, class W = WeightsAsF32<S>>
class AttentionSoftmax {
 public:
  // Scores to weights 2^(s - m), as W keeps them; weights of unseen keys in [begin, hi) become 0. A
  // score that is no number makes n, and so the row's output, none.
  static void Run(const SegmentArgs& a) {
    for (int row = 0; row < a.num_rows; row += kRowsAtOnce) {
      const int end = Least(row + kRowsAtOnce, a.num_rows);
      // The maxima of a few rows before their weights: a row's weights wait for its maximum, which
      // would leave the processor idle.
      for (int r = row; r < end; ++r) a.states[r].m = Maximum(a, r);
      for (int r = row; r < end; ++r) a.states[r].n = Weights(a, r, a.states[r].m);
    }
  }

 private:
  using F = typename S::F;
  using Rows = ScoreRows<S>;
  using Keys = typename Rows::Keys;
  static constexpr int L = S::kLanes;
  static constexpr int kSoftmaxKeys = Rows::kKeysAtOnce;
  static constexpr int kRowsAtOnce = 4;

  // Of the row's scores, after what is around its keys in their groups of vectors has become
  // -infinity.
  static float Maximum(const SegmentArgs& a, int row) {
    const Keys keys = Rows::KeysOf(a, row);
    if (keys.none()) return MinusInfinity();
    Rows::HideUnseen(a, row, keys);
    const float* const scores = Rows::Scores(a, row);
    F max[4];
    for (int v = 0; v < 4; ++v) max[v] = S::Load(scores + keys.first() + v * L);
    for (int i = keys.first() + kSoftmaxKeys; i < keys.last(); i += kSoftmaxKeys) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) max[v] = S::Max(max[v], S::Load(scores + i + v * L));
    }
    return S::ReduceMax(S::Max(S::Max(max[0], max[1]), S::Max(max[2], max[3])));
  }

  // The row's scores to weights, given its maximum. Returns their sum.
  static float Weights(const SegmentArgs& a, int row, float m) {
    const Keys keys = Rows::KeysOf(a, row);
    float* const scores = Rows::Scores(a, row);
    const int hi = a.hi - a.segment_begin;
    float n = 0.0f;
    if (m != MinusInfinity()) {
      n = Weights(scores, keys, m);
    } else if (Rows::AnyNaN(scores, keys.begin, keys.end)) {
      // There are NaN, behind which the comparisons lose what was greater.
      n = __builtin_nanf("");
    }
    W::Clear(scores, n > 0.0f ? keys.last() : keys.begin, hi);
    return n;
  }

  static float Weights(float* scores, const Keys& keys, float m) {
    const F shift = S::Set1(m);
    F sum[4] = {S::Zero(), S::Zero(), S::Zero(), S::Zero()};
    for (int i = keys.first(); i < keys.last(); i += kSoftmaxKeys) {
      F weights[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        weights[v] = W::Power(S::Sub(S::Load(scores + i + v * L), shift));
      }
      W::Put(scores, i, weights, sum);
    }
    return S::ReduceAdd(S::Add(S::Add(sum[0], sum[1]), S::Add(sum[2], sum[3])));
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_SOFTMAX_H_
