#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORD_SOFTMAX_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORD_SOFTMAX_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_word_scales.h"
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/simd_math.h"

// The middle pass of a segment whose weights become integers (attention_words.h). Include only from
// files that are compiled for one level.
namespace refrain::kernels::cpu {

// Weights of a tile of kTileKeys keys are relative to the row's greatest there: what is too small
// to be kept is then less than the rounding of 64 weights, however far above the tile another one
// is. The tile of a sequence's first keys has weights as f32, where its scores were: most models
// look at the first key where they look at nothing, and what is left for the others would be lost
// beside it. Words are where the scores before them were, 32 pairs a tile: pair 16 g + l is of keys
// 32 g + l and 32 g + 16 + l. Behind all scores a float per tile, what one unit of its weights
// stands for beside the row's greatest.
template <class I>
class WordSoftmax {
 public:
  static void Run(const SegmentArgs& a) {
    for (int row = 0; row < a.num_rows; row += kRowsAtOnce) {
      const int end = Least(row + kRowsAtOnce, a.num_rows);
      for (int r = row; r < end; ++r) a.states[r].m = Maximum(a, r);
      for (int r = row; r < end; ++r) a.states[r].n = Weights(a, r, a.states[r].m);
    }
  }

  // The last key of the segment's tile of f32 weights, if it has one.
  static int32_t EndOfExact(const SegmentArgs& a) {
    return a.segment_begin == 0 && a.begin < kTileKeys ? Least(a.hi, kTileKeys) : 0;
  }

  // The words of the row's tile whose first key is `key` of the segment, and what a unit of them
  // is.
  static const uint32_t* Words(const SegmentArgs& a, int row, int key) {
    return reinterpret_cast<const uint32_t*>(Rows::Scores(a, row)) + PlaceOf(a, key);
  }
  // Of one key of a tile of words.
  static float Weight(const SegmentArgs& a, int row, int key) {
    const int in_pairs = key % 32;
    const uint32_t pair = Words(a, row, key / 32 * 32)[in_pairs % 16];
    return static_cast<float>(in_pairs < 16 ? pair & 0xffff : pair >> 16) * *Unit(a, row, key);
  }
  static const float* Unit(const SegmentArgs& a, int row, int key) {
    return Rows::Scores(a, row) + kUnits + key / kTileKeys;
  }

 private:
  // Behind the f32 weights, if there are.
  static int PlaceOf(const SegmentArgs& a, int key) {
    return key / 2 + (EndOfExact(a) > 0 ? kTileKeys / 2 : 0);
  }

  using Rows = ScoreRows<Avx512>;
  using Keys = Rows::Keys;
  static constexpr int kRowsAtOnce = 4;
  static constexpr int kTiles = kMaxSegmentKeys / kTileKeys;
  // Behind the scores of a row: the maximum of each tile, then the units.
  static constexpr int kMaxima = kMaxSegmentKeys;
  static constexpr int kUnits = kMaxima + kTiles;
  static_assert(kUnits + kTiles <= kScoreStride && Rows::kKeysAtOnce == kTileKeys);

  static __m512 WeightBits() { return _mm512_set1_ps(static_cast<float>(kWeightBits)); }

  static float Maximum(const SegmentArgs& a, int row) {
    float* const scores = Rows::Scores(a, row);
    const Keys keys = Rows::KeysOf(a, row);
    __m256 maxima = _mm256_set1_ps(MinusInfinity());
    _mm256_storeu_ps(scores + kMaxima, maxima);
    if (keys.none()) return MinusInfinity();
    Rows::HideUnseen(a, row, keys);
    for (int i = keys.first(); i < keys.last(); i += kTileKeys) {
      const float* const p = scores + i;
      const __m512 max =
          _mm512_max_ps(_mm512_max_ps(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)),
                        _mm512_max_ps(_mm512_loadu_ps(p + 32), _mm512_loadu_ps(p + 48)));
      scores[kMaxima + i / kTileKeys] = _mm512_reduce_max_ps(max);
    }
    maxima = _mm256_loadu_ps(scores + kMaxima);
    return _mm512_reduce_max_ps(_mm512_insertf32x8(_mm512_set1_ps(MinusInfinity()), maxima, 0));
  }

  // The row's scores to weights, given its maximum. Returns their sum.
  static float Weights(const SegmentArgs& a, int row, float m) {
    float* const scores = Rows::Scores(a, row);
    const Keys keys = Rows::KeysOf(a, row);
    const int hi = a.hi - a.segment_begin;
    if (m == MinusInfinity()) {
      const bool nan = Rows::AnyNaN(scores, keys.begin, keys.end);
      for (int i = keys.first(); i < hi; i += kTileKeys) Clear(a, scores, i);
      return nan ? __builtin_nanf("") : 0.0f;
    }
    const __m512 maxima =
        _mm512_insertf32x8(_mm512_set1_ps(MinusInfinity()), _mm256_loadu_ps(scores + kMaxima), 0);
    const __m512 units =
        Exp2<Avx512>(_mm512_sub_ps(_mm512_sub_ps(maxima, _mm512_set1_ps(m)), WeightBits()));
    __m512 sums = _mm512_setzero_ps();
    __m512i all = _mm512_setzero_si512();
    for (int i = keys.first(); i < keys.last(); i += kTileKeys) {
      if (i < EndOfExact(a)) {
        sums = Exactly(scores + i, m);
        continue;
      }
      const float greatest = scores[kMaxima + i / kTileKeys];
      if (greatest == MinusInfinity() && !Rows::AnyNaN(scores, i, i + kTileKeys)) {
        Clear(a, scores, i);
        continue;
      }
      const __m512i sum =
          Tile(scores + i, greatest, reinterpret_cast<uint32_t*>(scores) + PlaceOf(a, i), all);
      const __m512 unit = _mm512_permutexvar_ps(_mm512_set1_epi32(i / kTileKeys), units);
      sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), unit, sums);
    }
    for (int i = keys.last(); i < hi; i += kTileKeys) Clear(a, scores, i);
    _mm256_storeu_ps(scores + kUnits, _mm512_castps512_ps256(units));
    // NaN becomes the one integer that is negative.
    if (_mm512_movepi32_mask(all) != 0) return __builtin_nanf("");
    return _mm512_reduce_add_ps(sums);
  }

  // Four vectors of scores to weights as they are. Returns sums of them.
  static __m512 Exactly(float* scores, float m) {
    __m512 sums = _mm512_setzero_ps();
    for (int i = 0; i < kTileKeys; i += 16) {
      const __m512 weights =
          Exp2<Avx512>(_mm512_sub_ps(_mm512_loadu_ps(scores + i), _mm512_set1_ps(m)));
      _mm512_storeu_ps(scores + i, weights);
      sums = _mm512_add_ps(sums, weights);
    }
    return sums;
  }

  // Four vectors of scores to words at `out`, which may be where scores before these were. Returns
  // sums of them, and adds what they were to `all`.
  static __m512i Tile(const float* scores, float greatest, uint32_t* out, __m512i& all) {
    __m512i weights[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      // In this order, so that the greatest weight is 2^kWeightBits however large the scores are.
      const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(scores + v * 16), _mm512_set1_ps(greatest));
      weights[v] = _mm512_cvtps_epi32(Exp2Coarse<Avx512>(_mm512_add_ps(x, WeightBits())));
    }
    const __m512i ones = _mm512_set1_epi16(1);
    const __m512i low = _mm512_or_si512(weights[0], _mm512_slli_epi32(weights[1], 16));
    const __m512i high = _mm512_or_si512(weights[2], _mm512_slli_epi32(weights[3], 16));
    constexpr int kOr = 0xfe;
    all = _mm512_ternarylogic_epi32(all, weights[0], weights[1], kOr);
    all = _mm512_ternarylogic_epi32(all, weights[2], weights[3], kOr);
    _mm512_storeu_si512(out, low);
    _mm512_storeu_si512(out + 16, high);
    return I::Dot(I::Dot(_mm512_setzero_si512(), low, ones), high, ones);
  }

  static void Clear(const SegmentArgs& a, float* scores, int i) {
    if (i < EndOfExact(a)) {
      for (int j = 0; j < kTileKeys; j += 16) _mm512_storeu_ps(scores + i + j, _mm512_setzero_ps());
      return;
    }
    auto* const out = reinterpret_cast<uint32_t*>(scores) + PlaceOf(a, i);
    _mm512_storeu_si512(out, _mm512_setzero_si512());
    _mm512_storeu_si512(out + 16, _mm512_setzero_si512());
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORD_SOFTMAX_H_
