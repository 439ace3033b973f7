#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WIDENING_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WIDENING_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_tiles.h"

// Copies of up to kTileKeys keys or values as f32, without the gaps of part-full chunks, over a
// level's vector type S. Include only from files that are compiled for one level.
namespace refrain::kernels::cpu {

template <class S>
class WidenedTiles {
 public:
  // k_tile[i][key - tile] = K, for the keys in `range`. Vectors may run over the end of a piece;
  // the next piece overwrites what they leave, or nobody reads it.
  static void Keys(const SegmentArgs& a, int32_t tile, TileRange range) {
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                const std::byte* const k = piece.k + a.head_offset;
                const auto* const k32 = reinterpret_cast<const float*>(k) + token;
                const auto* const k16 = reinterpret_cast<const uint16_t*>(k);
                float* const out = a.k_tile + (key - tile);
                switch (a.type) {
                  case KvElementType::kF32:
                    return WidenKeyRows(a, k32, count, out);
                  case KvElementType::kF16:
                    return WidenKeyRows(a, k16 + token, count, out);
                  case KvElementType::kBF16Pairs:
                    return WidenKeyPairs(a, k16 + 2 * token, count, out);
                }
              });
  }

  // v_tile[key - tile][:] = V, for the keys in `range`; elements from head_dim to the next whole
  // vector are 0.
  static void Values(const SegmentArgs& a, int32_t tile, TileRange range) {
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                const std::byte* const v = piece.v + a.head_offset;
                const int64_t d = a.head_dim;
                const auto* const v32 = reinterpret_cast<const float*>(v) + token * d;
                const auto* const v16 = reinterpret_cast<const uint16_t*>(v);
                float* const out = a.v_tile + (key - tile) * a.o_stride;
                switch (a.type) {
                  case KvElementType::kF32:
                    return WidenValueRows(a, v32, count, out);
                  case KvElementType::kF16:
                    return WidenValueRows(a, v16 + token * d, count, out);
                  case KvElementType::kBF16Pairs:
                    return WidenValuePairs(a, v16, token, count, out);
                }
              });
  }

 private:
  using F = typename S::F;
  static constexpr int L = S::kLanes;

  // Sizes are copied out of `a` first: to the compiler a store to `out` may change it.
  template <class E>
  static void WidenKeyRows(const SegmentArgs& a, const E* k, int count, float* out) {
    const int d = a.head_dim;
    const int64_t stride = a.chunk_tokens;
    if (count == kTileKeys) {
      for (int i = 0; i < d; ++i, k += stride, out += kKeyTileStride) {
#pragma GCC unroll 16
        for (int j = 0; j < kTileKeys; j += L) S::Store(out + j, LoadAs<S>(k + j));
      }
      return;
    }
    for (int i = 0; i < d; ++i, k += stride, out += kKeyTileStride) {
      for (int j = 0; j < count; j += L) S::Store(out + j, LoadAs<S>(k + j));
    }
  }

  static void WidenKeyPairs(const SegmentArgs& a, const uint16_t* k, int count, float* out) {
    const int d = a.head_dim;
    const int64_t stride = int64_t{2} * a.chunk_tokens;
    for (int i = 0; i < d; i += 2, k += stride, out += 2 * kKeyTileStride) {
#pragma GCC unroll 4
      for (int j = 0; j < count; j += L) {
        F even, odd;
        S::LoadPairs(k + 2 * j, even, odd);
        S::Store(out + j, even);
        S::Store(out + kKeyTileStride + j, odd);
      }
    }
  }

  static F LoadFirst(const float* p, int n) { return S::LoadN(p, n); }
  static F LoadFirst(const uint16_t* p, int n) { return S::LoadF16N(p, n); }

  template <class E>
  static void WidenValueRows(const SegmentArgs& a, const E* v, int count, float* out) {
    const int d = a.head_dim;
    const int64_t stride = a.o_stride;
    const int whole = d / (4 * L) * (4 * L);
    for (int j = 0; j < count; ++j, v += d, out += stride) {
      for (int i = 0; i < whole; i += 4 * L) {
#pragma GCC unroll 4
        for (int u = 0; u < 4 * L; u += L) S::Store(out + i + u, LoadAs<S>(v + i + u));
      }
      int i = whole;
      for (; i + L <= d; i += L) S::Store(out + i, LoadAs<S>(v + i));
      if (i < d) S::Store(out + i, LoadFirst(v + i, d - i));
    }
  }

  static void WidenValuePairs(const SegmentArgs& a, const uint16_t* v, int token, int count,
                              float* out) {
    const int d = a.head_dim;
    const int64_t stride = a.o_stride;
    const int end = token + count;
    // Both tokens of a pair at once; the first and the last may be half outside.
    for (int t = token - token % 2; t < end; t += 2) {
      const uint16_t* const pairs = v + static_cast<int64_t>(t) * d;
      float* const row = out + (t - token) * stride;
      for (int i = 0; i < d; i += L) {
        F even, odd;
        if (i + L <= d) {
          S::LoadPairs(pairs + 2 * i, even, odd);
        } else {
          S::LoadPairsN(pairs + 2 * i, d - i, even, odd);
        }
        if (t >= token) S::Store(row + i, even);
        if (t + 1 < end) S::Store(row + stride + i, odd);
      }
    }
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WIDENING_H_
