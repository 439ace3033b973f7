#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORD_TILE_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORD_TILE_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pairs.h"

// The two products of attention_words.h, which says what I is. Include only from files that are
// compiled for one level.
namespace refrain::kernels::cpu {
namespace {

// What becomes of a tile's sums: scores.
struct PutScores {
  float* out;               // [rows, kScoreStride]
  const float* row_scales;  // [rows], `row_stride` from one to the next
  int64_t row_stride;
  const float* key_scales;

  void Put(int r, int v, __m512 sums) const {
    const __m512 scaled = _mm512_mul_ps(sums, _mm512_loadu_ps(key_scales + v * 16));
    _mm512_storeu_ps(out + r * int64_t{kScoreStride} + v * 16,
                     _mm512_mul_ps(scaled, _mm512_set1_ps(row_scales[r * row_stride])));
  }
};

// Or a part of the output, the first one or one that is added.
template <bool kFirst>
struct PutOutput {
  float* out;  // [rows, stride]
  int64_t stride;
  const float* row_scales;  // [rows], kScoreStride from one to the next
  const float* column_scales;

  void Put(int r, int v, __m512 sums) const {
    float* const to = out + r * stride + v * 16;
    const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(row_scales[r * int64_t{kScoreStride}]),
                                       _mm512_loadu_ps(column_scales + v * 16));
    _mm512_storeu_ps(to, kFirst ? _mm512_mul_ps(sums, scale)
                                : _mm512_fmadd_ps(sums, scale, _mm512_loadu_ps(to)));
  }
};

}  // namespace

// R rows x V vectors of sums over steps of x[r][i] . w[i][:], exact.
template <class I, class Fetch, class To, int R, int V>
struct WordTile {
  static void Run(const uint32_t* x, int64_t x_stride, int steps, PairMatrix w, Fetch fetch,
                  To to) {
    __m512i sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = _mm512_setzero_si512();
    }
    const auto ahead = fetch.template Begin<V * 16>(steps);
    for (int i = 0; i < steps; ++i) {
      __m512i right[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) right[v] = _mm512_loadu_si512(w.p + i * w.stride + v * 16);
      ahead.template Ask<V * 16>(i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        int32_t pair;  // by memcpy: the rows were floats
        __builtin_memcpy(&pair, x + r * x_stride + i, sizeof(pair));
        const __m512i left = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = I::Dot(sum[r][v], left, right[v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) to.Put(r, v, _mm512_cvtepi32_ps(sum[r][v]));
    }
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORD_TILE_H_
