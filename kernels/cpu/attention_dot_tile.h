#ifndef REFRAIN_KERNELS_CPU_ATTENTION_DOT_TILE_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_DOT_TILE_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/attention_pairs.h"

// The two products of attention_dot.h, which says what I is. Include only from files that are
// compiled for one level.
namespace refrain::kernels::cpu {

// R rows x V vectors of sums: out[r][:] = start + sum over steps of x[r][i] . w[i][:].
template <class I, class Fetch, bool kFromZero, int R, int V>
struct DotTile {
  static void Run(const uint32_t* x, int64_t x_stride, int steps, PairMatrix w, float* out,
                  int64_t out_stride, Fetch fetch) {
    __m512 sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sum[r][v] =
            kFromZero ? _mm512_setzero_ps() : _mm512_loadu_ps(out + r * out_stride + v * 16);
      }
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
      for (int v = 0; v < V; ++v) _mm512_storeu_ps(out + r * out_stride + v * 16, sum[r][v]);
    }
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_DOT_TILE_H_
