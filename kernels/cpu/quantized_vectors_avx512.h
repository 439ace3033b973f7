// What the vectors of AVX-512, with and without VNNI, have in common: see quantized_kernels_inl.h.
// For inclusion by the files of single instruction-set levels only.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX512_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/prefetch.h"

namespace refrain::kernels::cpu {
namespace {

// Four digits of activations, or one sum, read as one number.
using Int32MayAlias [[gnu::may_alias, gnu::aligned(1)]] = int;

struct Avx512Vectors {
  static constexpr int kLanes = 16;
  static constexpr int kGemmTiles = 2;
  static constexpr bool kFewRegisters = false;

  using F = __m512;
  using I = __m512i;

  static __mmask16 Mask(int lanes) {
    return lanes >= 16 ? 0xffff : lanes <= 0 ? 0 : static_cast<__mmask16>((1 << lanes) - 1);
  }

  static I Zero() { return _mm512_setzero_si512(); }
  static I Set8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static I Set32(int x) { return _mm512_set1_epi32(x); }
  static I Load(const void* p) { return _mm512_loadu_si512(p); }
  static void Store(void* p, I x) { _mm512_storeu_si512(p, x); }
  static I Broadcast32(const void* p) {
    return _mm512_set1_epi32(*static_cast<const Int32MayAlias*>(p));
  }
  static I And(I x, I y) { return _mm512_and_si512(x, y); }
  static I Or(I x, I y) { return _mm512_or_si512(x, y); }
  static I Xor(I x, I y) { return _mm512_xor_si512(x, y); }
  static I Add32(I x, I y) { return _mm512_add_epi32(x, y); }
  static I Sub32(I x, I y) { return _mm512_sub_epi32(x, y); }
  template <int kCount>
  static I ShiftLeft16(I x) {
    return _mm512_slli_epi16(x, kCount);
  }
  template <int kCount>
  static I ShiftRight16(I x) {
    return _mm512_srli_epi16(x, kCount);
  }
  template <int kCount>
  static I ShiftLeft32(I x) {
    return _mm512_slli_epi32(x, kCount);
  }
  template <int kCount>
  static I ShiftRightSigned32(I x) {
    return _mm512_srai_epi32(x, kCount);
  }
  static F SetF(float x) { return _mm512_set1_ps(x); }
  static F BroadcastF(const float* p) { return _mm512_set1_ps(*p); }
  static F LoadF(const float* p) { return _mm512_loadu_ps(p); }
  static void StoreF(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F LoadN(const float* p, int lanes) { return _mm512_maskz_loadu_ps(Mask(lanes), p); }
  static void StoreN(float* p, F x, int lanes) { _mm512_mask_storeu_ps(p, Mask(lanes), x); }
  static F LoadF16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static F LoadU8(const void* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  static F LoadI8(const void* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  static F Add(F x, F y) { return _mm512_add_ps(x, y); }
  static F Mul(F x, F y) { return _mm512_mul_ps(x, y); }
  static F Div(F x, F y) { return _mm512_div_ps(x, y); }
  static F Fma(F x, F y, F z) { return _mm512_fmadd_ps(x, y, z); }
  static F Abs(F x) { return _mm512_abs_ps(x); }
  static F Min(F x, F y) { return _mm512_min_ps(x, y); }
  static F Max(F x, F y) { return _mm512_max_ps(x, y); }
  static F MaxSize(F x, F y) {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
  }
  static float ReduceMaxSize(F x) {
    return __builtin_bit_cast(float, _mm512_reduce_max_epi32(_mm512_castps_si512(x)));
  }
  static F ToFloat(I x) { return _mm512_cvtepi32_ps(x); }
  static I Round(F x) { return _mm512_cvtps_epi32(x); }
  static int32_t ReduceAdd32(I x) { return _mm512_reduce_add_epi32(x); }
  // Of four at once, which are transposed on the way: a third of the shuffles.
  static void ReduceMaxSize4(const F x[4], float out[4]) {
    const F a = MaxSize(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    const F b = MaxSize(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    const F all = MaxSize(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    const I bits = _mm512_castps_si512(all);
    const __m256i half =
        _mm256_max_epi32(_mm512_castsi512_si256(bits), _mm512_extracti32x8_epi32(bits, 1));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out),
        _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
  }
  static void ReduceAdd4(const I x[4], int32_t out[4]) {
    const I a = Add32(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
    const I b = Add32(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
    const I all = Add32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti32x8_epi32(all, 1));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out),
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
  }
  static void StoreI8(int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x));
  }
  static F PowerOfTwo(I i) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(Add32(i, _mm512_set1_epi32(127)), 23));
  }
  [[gnu::always_inline]] static void Prefetch(const void* p) { PrefetchToSecondLevel(p); }
  [[gnu::always_inline]] static void PrefetchToWrite(const void* p) { cpu::PrefetchToWrite(p); }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_VECTORS_AVX512_H_
