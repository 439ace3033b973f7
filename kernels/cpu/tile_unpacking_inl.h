// Quantised weights unpacked to tiles of bf16: for inclusion by the files of single instruction-set
// levels only. V as quantized_kernels_inl.h says, of 16 lanes and kShifted.

#ifndef REFRAIN_KERNELS_CPU_TILE_UNPACKING_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_UNPACKING_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/quantized_operands_inl.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

namespace {  // not over types of the level: each level's own

constexpr int kAndOr = 0xea;  // of _mm512_ternarylogic_epi32: (a & b) | c

// Halves up: two thirds of the time of vcvtne2ps2bf16 and a shuffle. The upper halves of the
// results are bf16.
inline __m512i HalfUp(__m512 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

inline __m512 UpperHalf(__m512i x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// NaN without the lower bits with which HalfUp would make a number of it.
inline __m512 QuietNaN(__m512 x) {
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                            _mm512_set1_ps(__builtin_nanf("")));
}

// The upper halves of a and b as [16][2].
inline __m512i PairsOf(__m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(b, _mm512_set1_epi32(static_cast<int>(0xffff0000)),
                                   _mm512_srli_epi32(a, 16), kAndOr);
}

// a and b as one row of a right operand: high, and what is left if kExact.
template <bool kExact>
inline void StorePair(__m512 a, __m512 b, uint16_t* high, uint16_t* low) {
  const __m512i x = HalfUp(a), y = HalfUp(b);
  _mm512_store_si512(high, PairsOf(x, y));
  if constexpr (kExact) {
    _mm512_store_si512(low, PairsOf(HalfUp(_mm512_sub_ps(a, UpperHalf(x))),
                                    HalfUp(_mm512_sub_ps(b, UpperHalf(y)))));
  }
}

// Byte i of each lane of an operand, q, as d * q + m: q becomes the mantissa's upper bits of a
// float from 1 to 2, 1 + q / 256. `scale` is 256 d, `offset` m - 256 d.
template <int i>
inline __m512 ElementOf(__m512i operand, __m512 scale, __m512 offset) {
  constexpr int kUp = 15 - 8 * i;
  if constexpr (kUp > 0) {
    operand = _mm512_slli_epi32(operand, kUp);
  } else {
    operand = _mm512_srli_epi32(operand, -kUp);
  }
  operand = _mm512_ternarylogic_epi32(operand, _mm512_set1_epi32(0xff << 15),
                                      _mm512_set1_epi32(0x3f800000), kAndOr);
  return _mm512_fmadd_ps(_mm512_castsi512_ps(operand), scale, offset);
}

}  // namespace

// Block `block` of a tile as a right operand of one step.
template <class V, class T, bool kExact>
inline void UnpackTile(const uint8_t* scales, const uint8_t* quants, int64_t block, uint16_t* high,
                       uint16_t* low) {
  __m512i operands[kOperands];
  UnpackBlock<V, T>(quants, operands);
  const BlockScales<V> s = LoadScales<V, T>(scales, block, 0);
  __m512 scales_of[T::kSums], offsets[T::kSums];
  for (int sum = 0; sum < T::kSums; ++sum) {
    const __m512 scale = _mm512_mul_ps(s.scale[sum], _mm512_set1_ps(256.0f));
    // The zero point of types without a minimum is 128.
    const __m512 offset =
        T::kHasMin ? _mm512_sub_ps(s.min, scale) : _mm512_mul_ps(scale, _mm512_set1_ps(-1.5f));
    scales_of[sum] = QuietNaN(scale);
    offsets[sum] = QuietNaN(offset);
  }
#pragma GCC unroll 8
  for (int j = 0; j < kOperands; ++j) {
    const __m512 scale = scales_of[T::kHalves ? j / 4 : 0];
    const __m512 offset = offsets[T::kHalves ? j / 4 : 0];
    const int64_t at = int64_t{j} * 2 * kTileRows * 2;
    StorePair<kExact>(ElementOf<0>(operands[j], scale, offset),
                      ElementOf<1>(operands[j], scale, offset), high + at, low + at);
    StorePair<kExact>(ElementOf<2>(operands[j], scale, offset),
                      ElementOf<3>(operands[j], scale, offset), high + at + 2 * kTileRows,
                      low + at + 2 * kTileRows);
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_UNPACKING_INL_H_
