// Quantised weights unpacked to tiles of bf16: for inclusion by the files of single instruction-set
// levels only. V as quantized_kernels_inl.h says, of 16 lanes and kShifted.

#ifndef REFRAIN_KERNELS_CPU_TILE_UNPACKING_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_UNPACKING_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/quantized_operands_inl.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

inline constexpr int kPairElements = 2 * kTileRows;  // of one row of a right operand

namespace {  // not over types of the level: each level's own

// The upper half of each float is what bf16 keeps when it is cut off.
inline __m512 UpperHalf(__m512 x) {
  return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// What is left of weight w, which is x / (1 + kWeightLift): w less the upper half of x, halves up.
inline __m512 RestOf(__m512 x) {
  const __m512 rest = _mm512_fmsub_ps(x, _mm512_set1_ps(1 / (1 + kWeightLift)), UpperHalf(x));
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(rest), _mm512_set1_epi32(0x8000)));
}

// The upper halves of a and b as [16][2].
inline __m512i PairsOf(__m512 a, __m512 b) {
  // (b & mask) | a >> 16
  return _mm512_ternarylogic_epi32(_mm512_castps_si512(b),
                                   _mm512_set1_epi32(static_cast<int>(0xffff0000)),
                                   _mm512_srli_epi32(_mm512_castps_si512(a), 16), 0xea);
}

// Weights a and b, lifted, as one row of a right operand: high, and what is left if kExact.
template <bool kExact>
inline void StorePair(__m512 a, __m512 b, uint16_t* high, uint16_t* low) {
  _mm512_store_si512(high, PairsOf(a, b));
  if constexpr (kExact) _mm512_store_si512(low, PairsOf(RestOf(a), RestOf(b)));
}

// What makes weights of quants q that are bits of the mantissa of a float from 1 to 2, q * 2^kTo /
// 2^23 above 1: one multiply-add. Lifted.
struct WeightsFrom {
  __m512 scale, offset;

  __m512 operator()(__m512i x, int bits, int to) const {
    // (x & mask) | 1.0
    x = _mm512_ternarylogic_epi32(x, _mm512_set1_epi32(((1 << bits) - 1) << to),
                                  _mm512_set1_epi32(0x3f800000), 0xea);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), scale, offset);
  }
};

// For d * q + m from bit kTo on; without a minimum d * (q - zero).
template <int kTo, class V, class T>
inline WeightsFrom MakeWeights(const BlockScales<V>& s, int sum, int zero) {
  constexpr float kLift = 1.0f + kWeightLift;
  const float unit = static_cast<float>(1 << (23 - kTo));
  const __m512 scale = _mm512_mul_ps(s.scale[sum], _mm512_set1_ps(kLift * unit));
  if constexpr (T::kHasMin) {
    return {scale, _mm512_fmsub_ps(s.min, _mm512_set1_ps(kLift), scale)};
  } else {
    return {scale, _mm512_mul_ps(scale, _mm512_set1_ps(-1.0f - static_cast<float>(zero) / unit))};
  }
}

// Moved up by kUp bits, down where that is negative.
template <int kUp>
inline __m512i Move(__m512i x) {
  if constexpr (kUp > 0) return _mm512_slli_epi32(x, kUp);
  if constexpr (kUp < 0) return _mm512_srli_epi32(x, -kUp);
  return x;
}

}  // namespace

// Operands of 8 bits: byte i of each lane of operand j is element 4 j + i of k.
template <class V, class T, bool kExact>
inline void UnpackBytes(const BlockScales<V>& s, const uint8_t* quants, uint16_t* high,
                        uint16_t* low) {
  constexpr int kTo = 15;
  __m512i operands[kOperands];
  UnpackBlock<V, T>(quants, operands);
  WeightsFrom weights[T::kSums];
  for (int sum = 0; sum < T::kSums; ++sum) weights[sum] = MakeWeights<kTo, V, T>(s, sum, 128);
#pragma GCC unroll 8
  for (int j = 0; j < kOperands; ++j) {
    const WeightsFrom& of = weights[T::kHalves ? j / 4 : 0];
    const __m512i x = operands[j];
    const int at = j * 2 * kPairElements;
    StorePair<kExact>(of(Move<kTo>(x), 8, kTo), of(Move<kTo - 8>(x), 8, kTo), high + at, low + at);
    StorePair<kExact>(of(Move<kTo - 16>(x), 8, kTo), of(Move<kTo - 24>(x), 8, kTo),
                      high + at + kPairElements, low + at + kPairElements);
  }
}

// Quants of 4 bits as they are stored: the lower half of byte i of each lane is element 8 j + i of
// k, the upper half element 8 j + 4 + i. Both are moved at once, to where either can stay.
template <class V, class T, bool kExact>
inline void UnpackNibbles(const BlockScales<V>& s, const uint8_t* quants, uint16_t* high,
                          uint16_t* low) {
  constexpr int kLower = 15, kUpper = 19;
  // Without a minimum, scales are for quants times 16.
  constexpr int kUp = kTopBits<V, T> ? 4 : 0;
  const WeightsFrom lower = MakeWeights<kLower - kUp, V, T>(s, 0, 128);
  const WeightsFrom upper = MakeWeights<kUpper - kUp, V, T>(s, 0, 128);
#pragma GCC unroll 4
  for (int j = 0; j < kOperands / 2; ++j) {
    const __m512i x = V::Load(quants + 64 * j);
    const __m512i bytes[4] = {Move<kLower>(x), Move<kLower - 8>(x), Move<kLower - 16>(x),
                              Move<kLower - 24>(x)};
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const WeightsFrom& of = half == 0 ? lower : upper;
      const int to = half == 0 ? kLower : kUpper;
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair) {
        const int at = ((2 * j + half) * 2 + pair) * kPairElements;
        StorePair<kExact>(of(bytes[2 * pair], 4, to), of(bytes[2 * pair + 1], 4, to), high + at,
                          low + at);
      }
    }
  }
}

// Block `block` of a tile as a right operand of one step. What comes out of scales that are no
// numbers is none: arithmetic leaves a bit in the upper half.
template <class V, class T, bool kExact>
inline void UnpackTile(const uint8_t* scales, const uint8_t* quants, int64_t block, uint16_t* high,
                       uint16_t* low) {
  const BlockScales<V> s = LoadScales<V, T>(scales, block, 0);
  if constexpr (T::kBits == 4) {
    UnpackNibbles<V, T, kExact>(s, quants, high, low);
  } else {
    UnpackBytes<V, T, kExact>(s, quants, high, low);
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_UNPACKING_INL_H_
