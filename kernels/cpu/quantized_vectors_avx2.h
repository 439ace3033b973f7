// The vectors of AVX2 with FMA and F16C that the loops of quantized_kernels_inl.h are templates
// over. For inclusion by the files of single instruction-set levels only.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX2_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/prefetch.h"

namespace refrain::kernels::cpu {
namespace {

// Four digits of activations, or one sum, read as one number.
using Int32MayAlias [[gnu::may_alias, gnu::aligned(1)]] = int;

struct Avx2Vectors {
  static constexpr int kLanes = 8;
  static constexpr int kGemmTiles = 1;
  static constexpr int kGemmRows = 3;
  static constexpr int kDirectRows = 2;
  static constexpr bool kShifted = false;

  using F = __m256;
  using I = __m256i;

  static I Mask(int lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static I Zero() { return _mm256_setzero_si256(); }
  static I Set8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static I Set32(int x) { return _mm256_set1_epi32(x); }
  static I Load(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
  static void Store(void* p, I x) { _mm256_storeu_si256(static_cast<I*>(p), x); }
  static I Broadcast32(const void* p) {
    return _mm256_set1_epi32(*static_cast<const Int32MayAlias*>(p));
  }
  static I And(I x, I y) { return _mm256_and_si256(x, y); }
  static I Or(I x, I y) { return _mm256_or_si256(x, y); }
  static I Xor(I x, I y) { return _mm256_xor_si256(x, y); }
  static I Add32(I x, I y) { return _mm256_add_epi32(x, y); }
  static I Sub32(I x, I y) { return _mm256_sub_epi32(x, y); }
  template <int kCount>
  static I ShiftLeft16(I x) {
    return _mm256_slli_epi16(x, kCount);
  }
  template <int kCount>
  static I ShiftRight16(I x) {
    return _mm256_srli_epi16(x, kCount);
  }
  template <int kCount>
  static I ShiftLeft32(I x) {
    return _mm256_slli_epi32(x, kCount);
  }
  template <int kCount>
  static I ShiftRightSigned32(I x) {
    return _mm256_srai_epi32(x, kCount);
  }
  static I Add16(I x, I y) {
    I sum = _mm256_add_epi16(x, y);
    // One after the other: g++ makes all products of a sum first, and has no registers for them.
    __asm__("" : "+x"(sum));
    return sum;
  }
  template <int kBits>
  static I Products16(I w, I a) {
    // s8 times s8 as |w| times (a with the sign of w).
    if constexpr (kBits == 8) {
      return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
    } else {
      return _mm256_maddubs_epi16(w, a);
    }
  }
  static I AddPairs(I sum, I words) {
    return Add32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  }

  template <int kCount>
  static I ShiftRightSigned16(I x) {
    return _mm256_srai_epi16(x, kCount);
  }
  static I AddWords(I sum, I w, I a) {
    sum = Add32(sum, _mm256_madd_epi16(w, a));
    __asm__("" : "+x"(sum));  // as in Add16
    return sum;
  }
  static void StoreWords(int16_t* p, I x) {
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, 0xd8), 0xd8));
  }

  static F SetF(float x) { return _mm256_set1_ps(x); }
  static F BroadcastF(const float* p) { return _mm256_broadcast_ss(p); }
  static F LoadF(const float* p) { return _mm256_loadu_ps(p); }
  static void StoreF(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F LoadN(const float* p, int lanes) { return _mm256_maskload_ps(p, Mask(lanes)); }
  static void StoreN(float* p, F x, int lanes) { _mm256_maskstore_ps(p, Mask(lanes), x); }
  static F LoadF16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static F LoadU8(const void* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  }
  static F LoadI8(const void* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  }
  static F Add(F x, F y) { return _mm256_add_ps(x, y); }
  static F Mul(F x, F y) { return _mm256_mul_ps(x, y); }
  static F Div(F x, F y) { return _mm256_div_ps(x, y); }
  static F Fma(F x, F y, F z) { return _mm256_fmadd_ps(x, y, z); }
  static F Abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static F Min(F x, F y) { return _mm256_min_ps(x, y); }
  static F Max(F x, F y) { return _mm256_max_ps(x, y); }
  static F MaxSize(F x, F y) {
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
  }
  static float ReduceMaxSize(F x) {
    const I bits = _mm256_castps_si256(x);
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
  }
  static F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }
  static I Round(F x) { return _mm256_cvtps_epi32(x); }
  static int32_t ReduceAdd32(I x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
  static void StoreI8(int8_t* p, I x) {
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static F PowerOfTwo(I i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(Add32(i, _mm256_set1_epi32(127)), 23));
  }
  [[gnu::always_inline]] static void Prefetch(const void* p) { PrefetchToSecondLevel(p); }
  [[gnu::always_inline]] static void PrefetchToWrite(const void* p) { cpu::PrefetchToWrite(p); }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX2_H_
