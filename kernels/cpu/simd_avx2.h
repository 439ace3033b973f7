#ifndef REFRAIN_KERNELS_CPU_SIMD_AVX2_H_
#define REFRAIN_KERNELS_CPU_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// Vectors of floats at level avx2 (with FMA and F16C). See simd_portable.h for what each operation
// means and simd_avx512.h for why the namespace is unnamed.
namespace refrain::kernels::cpu {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set1(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static F LoadN(const float* p, int n) { return _mm256_maskload_ps(p, FirstLanes(n)); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void StoreN(float* p, F x, int n) { _mm256_maskstore_ps(p, FirstLanes(n), x); }

  static F LoadF16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F LoadF16N(const uint16_t* p, int n) {
    alignas(16) uint16_t halves[kLanes] = {};
    for (int i = 0; i < n; ++i) halves[i] = p[i];
    return LoadF16(halves);
  }
  static void StoreF16(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void LoadPairs(const uint16_t* p, F& even, F& odd) {
    SplitPairs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), even, odd);
  }
  static void LoadPairsN(const uint16_t* p, int n, F& even, F& odd) {
    SplitPairs(_mm256_maskload_epi32(reinterpret_cast<const int*>(p), FirstLanes(n)), even, odd);
  }

  static void StoreE4m3Pairs(uint32_t* p, const uint8_t* even, const uint8_t* odd) {
    const __m256i bits = _mm256_or_si256(LoadBytes(even), _mm256_slli_epi32(LoadBytes(odd), 16));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
    const __m256i normal =
        _mm256_add_epi16(_mm256_slli_epi16(magnitude, 4), _mm256_set1_epi16(120 << 7));
    // Multiples of 2^-9 in bf16; number m is bytes 2m and 2m + 1.
    const __m256i subnormals = _mm256_broadcastsi128_si256(
        _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
    const __m256i bytes = _mm256_add_epi16(_mm256_mullo_epi16(magnitude, _mm256_set1_epi16(0x0202)),
                                           _mm256_set1_epi16(0x0100));
    const __m256i value = _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(subnormals, bytes),
                                             _mm256_cmpgt_epi16(_mm256_set1_epi16(8), magnitude));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)),
                                         _mm256_set1_epi16(0x7fc0));
    const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(bits, magnitude), 8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_or_si256(_mm256_or_si256(value, nan), sign));
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F TimesPow2OrZero(F x, F n, F tested, F limit) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    const F result = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
    return _mm256_and_ps(_mm256_cmp_ps(tested, limit, _CMP_NLT_UQ), result);
  }
  static F WhereAbove(const int32_t* p, int32_t limit, F x, F otherwise) {
    const __m256i above = _mm256_cmpgt_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi32(limit));
    return _mm256_blendv_ps(otherwise, x, _mm256_castsi256_ps(above));
  }
  static float ReduceMax(F x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  static float ReduceAdd(F x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }

 private:
  static __m256i LoadBytes(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256i FirstLanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static void SplitPairs(__m256i pairs, F& even, F& odd) {
    even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    odd = _mm256_castsi256_ps(
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u))));
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SIMD_AVX2_H_
