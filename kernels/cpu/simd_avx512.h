#ifndef REFRAIN_KERNELS_CPU_SIMD_AVX512_H_
#define REFRAIN_KERNELS_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// Vectors of floats at level avx512. See simd_portable.h for what each operation means.
//
// The unnamed namespace is intended, here and in the other simd headers: each kernel file is
// compiled for one level, and an inline function with external linkage could be merged by the
// linker with the copy of another level and then run on a machine that lacks its instructions.
// Templates over these types inherit their internal linkage.
namespace refrain::kernels::cpu {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  // Register tile of the attention products: rows x vectors accumulators.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 4;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static F LoadN(const float* p, int n) { return _mm512_maskz_loadu_ps(FirstLanes(n), p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void StoreN(float* p, F x, int n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x); }

  static F LoadF16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F LoadF16N(const uint16_t* p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p));
  }
  static void StoreF16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void LoadPairs(const uint16_t* p, F& even, F& odd) {
    SplitPairs(_mm512_loadu_si512(p), even, odd);
  }
  static void LoadPairsN(const uint16_t* p, int n, F& even, F& odd) {
    SplitPairs(_mm512_maskz_loadu_epi32(FirstLanes(n), p), even, odd);
  }

  static void StoreE4m3Pairs(uint32_t* p, const uint8_t* even, const uint8_t* odd) {
    const __m512i bits = _mm512_or_si512(LoadBytes(even), _mm512_slli_epi32(LoadBytes(odd), 16));
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi16(0x7f));
    __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    // Multiples of 2^-9 in bf16.
    const __m512i subnormals = _mm512_broadcast_i32x4(
        _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
    value = _mm512_mask_permutexvar_epi16(
        value, _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8)), magnitude, subnormals);
    value =
        _mm512_mask_mov_epi16(value, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f)),
                              _mm512_set1_epi16(0x7fc0));
    const __m512i sign = _mm512_slli_epi16(_mm512_xor_si512(bits, magnitude), 8);
    _mm512_storeu_si512(p, _mm512_or_si512(value, sign));
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Round(F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // x less the whole number below it
  static F Fraction(F x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
  // n is rounded down.
  static F TimesPow2OrZero(F x, F n, F tested, F limit) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(tested, limit, _CMP_NLT_UQ), x, n);
  }
  static F WhereAbove(const int32_t* p, int32_t limit, F x, F otherwise) {
    const __mmask16 above =
        _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32(limit));
    return _mm512_mask_mov_ps(otherwise, above, x);
  }
  static float ReduceMax(F x) { return _mm512_reduce_max_ps(x); }
  static float ReduceAdd(F x) { return _mm512_reduce_add_ps(x); }

 private:
  static __m512i LoadBytes(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  static void SplitPairs(__m512i pairs, F& even, F& odd) {
    even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SIMD_AVX512_H_
