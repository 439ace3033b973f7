#ifndef REFRAIN_KERNELS_CPU_ATTENTION_TILES_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_TILES_H_

#include <cstdint>

#include "kernels/cpu/prefetch.h"

// The two matrix products of attention on register tiles, over a level's vector type S. R query
// rows x V vectors of accumulators. Include only from files that are compiled for one level.
namespace refrain::kernels::cpu {

namespace {

// What a tile asks the second-level cache for while it multiplies: Begin<Elements>(steps) of what
// it is given, before its inner loop, returns something whose Ask<Elements>(i) it calls once per
// step. With few rows LinesAhead::Reader; with many a share of what the next
// tile is read from. A burst would take every line fill buffer from the loads; a line per step goes
// unnoticed beside them, and more are asked for only where rows are so few that reading is the
// limit.
struct FetchEvenly {
  const char* p;
  int64_t step;  // bytes

  template <int Elements>
  FetchEvenly Begin(int) const {
    return *this;
  }

  template <int Elements>
  [[gnu::always_inline]] void Ask(int i) const {
    PrefetchToSecondLevel(p + i * step);
    for (int64_t j = 64; __builtin_expect(j < step, 0); j += 64) {
      PrefetchToSecondLevel(p + i * step + j);
    }
  }
};

// What becomes of the converted elements: nothing more, or a copy as f32 for the rows that follow.
struct KeepNothing {
  template <class S>
  void Put(int, int, typename S::F) const {}
};
struct KeepCopy {
  float* out;
  int64_t stride;

  template <class S>
  void Put(int i, int offset, typename S::F x) const {
    S::Store(out + i * stride + offset, x);
  }
};

}  // namespace

template <class S>
inline typename S::F LoadAs(const float* p) {
  return S::Load(p);
}
template <class S>
inline typename S::F LoadAs(const uint16_t* p) {  // f16
  return S::LoadF16(p);
}

// scores[r][j] = sum_i q[r][i] k[i][j] for V vectors of keys. E is float or uint16_t (f16).
template <class S, class E, class Fetch, class Keep, int R, int V>
struct ScoreTile {
  static void Run(const float* q, int64_t q_stride, int head_dim, const E* k, int64_t k_stride,
                  float* scores, Fetch fetch, Keep keep) {
    using F = typename S::F;
    F sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = S::Zero();
    }
    const auto ahead = fetch.template Begin<V * S::kLanes>(head_dim);
    for (int i = 0; i < head_dim; ++i) {
      F key[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        key[v] = LoadAs<S>(k + i * k_stride + v * S::kLanes);
        keep.template Put<S>(i, v * S::kLanes, key[v]);
      }
      ahead.template Ask<V * S::kLanes>(i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F query = S::Set1(q[r * q_stride + i]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = S::Fma(query, key[v], sum[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) S::Store(scores + r * kScoreStride + v * S::kLanes, sum[r][v]);
    }
  }
};

// The same over K [d/2][c][2] in bf16; k_stride in elements.
template <class S, class Fetch, int R, int V>
struct ScoreTilePairs {
  static void Run(const float* q, int64_t q_stride, int head_dim, const uint16_t* k,
                  int64_t k_stride, float* scores, Fetch fetch) {
    using F = typename S::F;
    F sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = S::Zero();
    }
    const auto ahead = fetch.template Begin<2 * V * S::kLanes>(head_dim / 2);
    for (int i = 0; i < head_dim; i += 2) {
      ahead.template Ask<2 * V * S::kLanes>(i / 2);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        F even, odd;
        S::LoadPairs(k + (i / 2) * k_stride + 2 * v * S::kLanes, even, odd);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sum[r][v] = S::Fma(S::Set1(q[r * q_stride + i]), even, sum[r][v]);
          sum[r][v] = S::Fma(S::Set1(q[r * q_stride + i + 1]), odd, sum[r][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) S::Store(scores + r * kScoreStride + v * S::kLanes, sum[r][v]);
    }
  }
};

// o[r][:] += sum_j p[r][j] v[j][:] for V vectors of output elements, keys in order.
template <class S, class E, class Fetch, class Keep, int R, int V>
struct ValueTile {
  static void Run(const float* p, int keys, const E* v, int64_t v_stride, float* o,
                  int64_t o_stride, Fetch fetch, Keep keep) {
    using F = typename S::F;
    F sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) sum[r][i] = S::Load(o + r * o_stride + i * S::kLanes);
    }
    const auto ahead = fetch.template Begin<V * S::kLanes>(keys);
    for (int j = 0; j < keys; ++j) {
      F value[V];
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) {
        value[i] = LoadAs<S>(v + j * v_stride + i * S::kLanes);
        keep.template Put<S>(j, i * S::kLanes, value[i]);
      }
      ahead.template Ask<V * S::kLanes>(j);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F weight = S::Set1(p[r * kScoreStride + j]);
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i) sum[r][i] = S::Fma(weight, value[i], sum[r][i]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) S::Store(o + r * o_stride + i * S::kLanes, sum[r][i]);
    }
  }
};

// The same over V [c/2][d][2] in bf16, from token `token` of the chunk on; v_stride (2 d) from one
// pair of tokens to the next.
template <class S, class Fetch, int R, int V>
struct ValueTilePairs {
  static void Run(const float* p, int token, int keys, const uint16_t* v, int64_t v_stride,
                  float* o, int64_t o_stride, Fetch fetch) {
    using F = typename S::F;
    F sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) sum[r][i] = S::Load(o + r * o_stride + i * S::kLanes);
    }
    const auto ahead = fetch.template Begin<2 * V * S::kLanes>((keys + 1) / 2);
    int j = 0;
    while (j < keys) {
      // A pair counts whole unless the range begins with its second token or ends with its first.
      const bool use_even = (token + j) % 2 == 0;
      const bool use_odd = !use_even || j + 1 < keys;
      const float* const p_even = p + j;
      const float* const p_odd = p + j + (use_even ? 1 : 0);
      const uint16_t* const pair = v + (token + j) / 2 * v_stride;
      ahead.template Ask<2 * V * S::kLanes>(j / 2);
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) {
        F even, odd;
        S::LoadPairs(pair + 2 * i * S::kLanes, even, odd);
        if (use_even) {
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            sum[r][i] = S::Fma(S::Set1(p_even[r * kScoreStride]), even, sum[r][i]);
          }
        }
        if (use_odd) {
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            sum[r][i] = S::Fma(S::Set1(p_odd[r * kScoreStride]), odd, sum[r][i]);
          }
        }
      }
      j += use_even && use_odd ? 2 : 1;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < V; ++i) S::Store(o + r * o_stride + i * S::kLanes, sum[r][i]);
    }
  }
};

// Calls Tile<rows, vectors>::Run(args...) for run-time rows in [1, RowCount], vectors in [1,
// VectorCount].
template <template <int, int> class Tile, int RowCount, int VectorCount, class... Args>
inline void DispatchTile(int rows, int vectors, Args... args) {
  if constexpr (RowCount > 1) {
    if (rows < RowCount) {
      return DispatchTile<Tile, RowCount - 1, VectorCount>(rows, vectors, args...);
    }
  }
  if constexpr (VectorCount > 1) {
    if (vectors < VectorCount) {
      return DispatchTile<Tile, RowCount, VectorCount - 1>(rows, vectors, args...);
    }
  }
  Tile<RowCount, VectorCount>::Run(args...);
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_TILES_H_
