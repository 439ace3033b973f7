#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORD_SCALES_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORD_SCALES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/attention_pieces.h"

// Numbers as 16-bit integers times powers of two (attention_words.h): how many bits, which powers,
// and the rounding. Level avx512; include only from files that are compiled for one level.

namespace refrain::kernels::cpu {
namespace {

// Bits of magnitude of K. Sums of products stay below 2^31 as the magnitudes of a row of q sum up
// to less than 2^kQueryBits: where a few elements are far greater than the others, which is usual,
// that leaves more bits to all than a bound of each would.
inline constexpr int kKeyBits = 14;
inline constexpr int kQueryBits = 17;
// Of V, and of the greatest weight: 2^14 (2^11 - 1) kTileKeys < 2^31.
inline constexpr int kValueBits = 11;
inline constexpr int kWeightBits = 14;

// The greatest powers of two of which numbers of magnitude up to x are less than 2^bits, also
// rounded, or 256 of them that x is the sum of. NaN and infinity stay what they are; of what lies
// below 2^-100 nothing is left.
inline __m512 UnitExponent(__m512 x, int bits) {
  const float slack = 1.0f + 1.0f / static_cast<float>(1 << Least(bits, 9));
  const __m512 exponent = _mm512_getexp_ps(_mm512_mul_ps(x, _mm512_set1_ps(slack)));
  return _mm512_max_ps(_mm512_set1_ps(-100.0f),  // the second operand where there is NaN
                       _mm512_sub_ps(exponent, _mm512_set1_ps(static_cast<float>(bits - 1))));
}

// `up` turns numbers into integers, and `down` is 1 / up.
struct WordScales {
  __m512 up, down;

  explicit WordScales(__m512 exponent) {
    const __m512 one = _mm512_set1_ps(1.0f);
    up = _mm512_scalef_ps(one, _mm512_sub_ps(_mm512_setzero_ps(), exponent));
    down = _mm512_scalef_ps(one, exponent);
  }
};

// Integers x * up, the first of a pair in the lower half. Rounded by adding what leaves no bits
// behind the point. NaN becomes anything.
inline __m512i AsWords(__m512 first, __m512 second, __m512 up) {
  const __m512 whole = _mm512_set1_ps(0x1.8p23f);
  const __m512i low = _mm512_castps_si512(_mm512_fmadd_ps(first, up, whole));
  const __m512i high = _mm512_castps_si512(_mm512_fmadd_ps(second, up, whole));
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16));
}

inline __m256i Load256(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline constexpr int kUpperHalf = static_cast<int>(0xffff0000u);

// Magnitudes compare as their bits do, NaN above all numbers.
class GreatestF16 {
 public:
  void Add(__m256i x) {
    bits_ = _mm256_max_epu16(bits_, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
  }
  __m512 value() const { return _mm512_cvtph_ps(bits_); }

 private:
  __m256i bits_ = _mm256_setzero_si256();
};

class GreatestBf16 {
 public:
  void Add(__m512i pairs) {
    bits_ = _mm512_max_epu16(bits_, _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff)));
  }
  // Of the lower and upper elements of all pairs; the upper ones alone.
  __m512 value() const { return Upper(_mm512_max_epu16(bits_, _mm512_slli_epi32(bits_, 16))); }
  __m512 upper() const { return Upper(bits_); }

 private:
  static __m512 Upper(__m512i bits) {
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(kUpperHalf)));
  }

  __m512i bits_ = _mm512_setzero_si512();
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORD_SCALES_H_
