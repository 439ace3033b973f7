#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORD_SOURCES_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORD_SOURCES_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_word_scales.h"

// K and V of each type, 16 elements at a time as floats, for attention_word_operands.h. Level
// avx512; include only from files that are compiled for one level.

namespace refrain::kernels::cpu {
namespace {

// Keys of one piece from some token on, 16 at a time: their elements 2i and 2i + 1, and the
// greatest magnitude of each.
struct F16Keys {
  const uint16_t* k;
  int64_t chunk_tokens;

  F16Keys(const std::byte* head, int token, int c)
      : k(reinterpret_cast<const uint16_t*>(head) + token), chunk_tokens(c) {}
  void Load(int i, int j, __m512& even, __m512& odd) const {
    const uint16_t* const row = k + 2 * i * chunk_tokens + j;
    even = _mm512_cvtph_ps(Load256(row));
    odd = _mm512_cvtph_ps(Load256(row + chunk_tokens));
  }
  __m512 Greatest(int head_dim, int j) const {
    GreatestF16 greatest;
    for (int i = 0; i < head_dim; ++i) greatest.Add(Load256(k + i * chunk_tokens + j));
    return greatest.value();
  }
};

struct Bf16Keys {
  const uint32_t* k;
  int64_t chunk_tokens;

  Bf16Keys(const std::byte* head, int token, int c)
      : k(reinterpret_cast<const uint32_t*>(head) + token), chunk_tokens(c) {}
  void Load(int i, int j, __m512& even, __m512& odd) const {
    const __m512i pairs = _mm512_loadu_si512(k + i * chunk_tokens + j);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(kUpperHalf)));
  }
  __m512 Greatest(int head_dim, int j) const {
    GreatestBf16 greatest;
    for (int i = 0; i < head_dim / 2; ++i) {
      greatest.Add(_mm512_loadu_si512(k + i * chunk_tokens + j));
    }
    return greatest.value();
  }
};

// The values of a tile's keys, 16 elements from i on: those of key j, and the greatest magnitudes
// of the keys [begin, end).
struct F16Values {
  const uint16_t* rows[kTileKeys];

  void Set(int j, const std::byte* head, int token, int head_dim) {
    rows[j] = reinterpret_cast<const uint16_t*>(head) + int64_t{token} * head_dim;
  }
  void SetZeros(int j, const uint32_t* zeros) {
    rows[j] = reinterpret_cast<const uint16_t*>(zeros);
  }
  __m512 Load(int j, int i) const { return _mm512_cvtph_ps(Load256(rows[j] + i)); }
  __m512 Greatest(int begin, int end, int i) const {
    GreatestF16 greatest;
    for (int j = begin; j < end; ++j) greatest.Add(Load256(rows[j] + i));
    return greatest.value();
  }
};

struct Bf16Values {
  const uint32_t* rows[kTileKeys];
  int shifts[kTileKeys];  // by which the token's half becomes the upper one

  void Set(int j, const std::byte* head, int token, int head_dim) {
    rows[j] = reinterpret_cast<const uint32_t*>(head) + int64_t{token / 2} * head_dim;
    shifts[j] = token % 2 == 0 ? 16 : 0;
  }
  void SetZeros(int j, const uint32_t* zeros) {
    rows[j] = zeros;
    shifts[j] = 0;
  }
  __m512 Load(int j, int i) const {
    return _mm512_castsi512_ps(_mm512_and_si512(Shifted(j, i), _mm512_set1_epi32(kUpperHalf)));
  }
  __m512 Greatest(int begin, int end, int i) const {
    GreatestBf16 greatest;
    for (int j = begin; j < end; ++j) greatest.Add(Shifted(j, i));
    return greatest.upper();
  }

 private:
  __m512i Shifted(int j, int i) const {
    return _mm512_sll_epi32(_mm512_loadu_si512(rows[j] + i), _mm_cvtsi32_si128(shifts[j]));
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORD_SOURCES_H_
