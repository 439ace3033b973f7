#ifndef REFRAIN_KERNELS_CPU_ATTENTION_AMX_WEIGHTS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_AMX_WEIGHTS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/simd_avx512.h"

// Scores to weights while the scores of the next keys are computed. Include only from files that
// are compiled for one level.
namespace refrain::kernels::cpu {

// Of one or two tiles of rows that all see all keys of a segment, kTileKeys keys at a time. A row's
// weights are 2^(s - m) with the greatest score of its first kTileKeys keys as m, not of all: a
// float has room for sums up to kMostSum and beyond. So scores are read once, from the nearest
// cache. AttentionSoftmax does the rows for which that is not enough.
template <class I>
class WeightsInPassing {
 public:
  static constexpr int kRows = 32;

  // The scores of kTileKeys keys of each row, [kRows][kTileKeys]; of two tiles of keys by turns.
  float* scores(int32_t tile) { return scores_[(tile / kTileKeys) % 2]; }

  // `keys` keys from `begin` of the segment on, whose scores are in scores(begin); those behind
  // them in the tile get the weight 0.
  void Take(const SegmentArgs& a, int32_t begin, int keys) {
    if (keys < kTileKeys) HideBehind(a, begin, keys);
    begin == 0 ? Take<true>(a, begin) : Take<false>(a, begin);
  }

  // The rows' states. False: of one at least the weights are too much for a float, or none.
  bool Finish(const SegmentArgs& a) const {
    bool fits = true;
    for (int r = 0; r < a.num_rows; ++r) {
      a.states[r] = {m_[r], _mm512_reduce_add_ps(_mm512_load_ps(sums_[r]))};
      fits &= a.states[r].n < kMostSum;
    }
    return fits;
  }

 private:
  static constexpr float kMostSum = 0x1p60f;

  void HideBehind(const SegmentArgs& a, int32_t begin, int keys) {
    for (int r = 0; r < a.num_rows; ++r) {
      float* const row = scores(begin) + r * kTileKeys;
      for (int i = keys; i < kTileKeys; ++i) row[i] = MinusInfinity();
    }
  }

  static __m512 MaximumOfLanes(const float* row) {
    const __m512 low = _mm512_max_ps(_mm512_load_ps(row), _mm512_load_ps(row + 16));
    const __m512 high = _mm512_max_ps(_mm512_load_ps(row + 32), _mm512_load_ps(row + 48));
    return _mm512_max_ps(low, high);
  }

  // Of 16 rows, of which those behind `last` count as that one: by halves of lanes of two rows at a
  // time, a third of the instructions of a reduction of each.
  static __m512 Maxima(const float* rows, int last) {
    __m512 fours[4];  // lane 4j + r of [i] is one of four maxima of row 4i + r
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      __m512 of[4];
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) of[r] = MaximumOfLanes(rows + Least(4 * i + r, last) * kTileKeys);
      const __m512d first = _mm512_castps_pd(
          _mm512_max_ps(_mm512_unpacklo_ps(of[0], of[1]), _mm512_unpackhi_ps(of[0], of[1])));
      const __m512d second = _mm512_castps_pd(
          _mm512_max_ps(_mm512_unpacklo_ps(of[2], of[3]), _mm512_unpackhi_ps(of[2], of[3])));
      fours[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(first, second)),
                               _mm512_castpd_ps(_mm512_unpackhi_pd(first, second)));
    }
    const auto halves = [](__m512 a, __m512 b) {
      return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    };
    return halves(halves(fours[0], fours[1]), halves(fours[2], fours[3]));
  }

  template <bool kFirst>
  void Take(const SegmentArgs& a, int32_t begin) {
    const float* row = scores(begin);
    for (int r = 0; kFirst && r < a.num_rows; r += 16) {
      _mm512_store_ps(m_ + r, Maxima(row + r * kTileKeys, Least(15, a.num_rows - 1 - r)));
    }
    for (int r = 0; r < a.num_rows; ++r, row += kTileKeys) {
      const __m512 m = _mm512_set1_ps(m_[r]);
      __m512 weights[4];
      __m512 sums[4] = {kFirst ? _mm512_setzero_ps() : _mm512_load_ps(sums_[r]),
                        _mm512_setzero_ps()};
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        weights[v] = WeightsAsBf16<I>::Power(_mm512_sub_ps(_mm512_load_ps(row + v * 16), m));
      }
      WeightsAsBf16<I>::Put(a.scores + r * int64_t{kScoreStride}, begin, weights, sums);
      _mm512_store_ps(sums_[r], _mm512_add_ps(sums[0], sums[1]));
    }
  }

  alignas(64) float scores_[2][kRows * kTileKeys];
  alignas(64) float sums_[kRows][16];
  alignas(64) float m_[kRows];
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_AMX_WEIGHTS_H_
