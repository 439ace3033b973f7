// Rows of activations rounded to tiles of bf16, for inclusion by the files of single
// instruction-set levels only. Bf16 has the Round of bf16_instructions.h; see tile_kernels.h for
// the layout.

#ifndef REFRAIN_KERNELS_CPU_TILE_ROWS_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_ROWS_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/silu_inl.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

namespace {  // not templates: each level's own

// The halves of what Round made, as floats again.
inline __m512 WidenLower(__m512i words) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)), 16));
}
inline __m512 WidenUpper(__m512i words) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1)), 16));
}

// The lanes before `count`.
inline __mmask16 FirstLanes(int64_t count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1 << count) - 1);
}

}  // namespace

// V: vectors of 16 lanes as quantized_kernels_inl.h says.
template <class V, class Bf16>
void PackTileSwiGlu(const float* gate, const float* up, int64_t rows, uint16_t* high) {
  for (int64_t i = 0; i < rows * kTileK; i += kTileK) {
    const __m512 a = V::Mul(GateSilu<V>(V::LoadF(gate + i)), V::LoadF(up + i));
    const __m512 b = V::Mul(GateSilu<V>(V::LoadF(gate + i + 16)), V::LoadF(up + i + 16));
    _mm512_store_si512(high + i, Bf16::Round(a, b));
  }
}

template <class Bf16>
void PackTileRow(const float* x, int64_t k, uint16_t* high, uint16_t* low) {
  for (int64_t i = 0, to = 0; i < k; i += kTileK, to += kTileElements) {
    const __m512 a = _mm512_maskz_loadu_ps(FirstLanes(k - i), x + i);
    const __m512 b = _mm512_maskz_loadu_ps(FirstLanes(k - i - 16), x + i + 16);
    const __m512i words = Bf16::Round(a, b);
    _mm512_store_si512(high + to, words);
    if (low == nullptr) continue;
    _mm512_store_si512(low + to, Bf16::Round(_mm512_sub_ps(a, WidenLower(words)),
                                             _mm512_sub_ps(b, WidenUpper(words))));
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_ROWS_INL_H_
