#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORD_OPERANDS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORD_OPERANDS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_word_scales.h"
#include "kernels/cpu/attention_word_sources.h"

// q, K and V as pairs of 16-bit integers times powers of two, for attention_words.h. Whole numbers
// stay exact while they need no more bits than there are. What is no finite number, and all that
// shares its scale, comes out as zeros with a scale by which they become NaN. Level avx512; include
// only from files that are compiled for one level.
namespace refrain::kernels::cpu {
namespace {

// Operands of one tile, and of all rows.
class WordOperands {
 public:
  // Elements of heads go in whole vectors, and zeros are at hand for this many.
  static constexpr int kMostHeadDim = 256;

  // q as words: [rows, QueryStride] with the row's scale, a float, behind its head_dim / 2 pairs.
  static int QueryStride(const SegmentArgs& a) { return a.head_dim / 2 + 16; }

  static void Queries(const SegmentArgs& a) {
    auto* out = reinterpret_cast<uint32_t*>(a.q_pairs);
    // The even elements of two vectors, then the odd ones.
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    for (int r = 0; r < a.num_rows; ++r, out += QueryStride(a)) {
      const float* const q = a.q + r * a.q_stride;
      const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
      __m512i greatest = _mm512_setzero_si512();  // by the bits: above them are those of NaN
      __m512 sum = _mm512_setzero_ps();
      for (int i = 0; i < a.head_dim; i += 16) {
        const __m512i x = _mm512_and_si512(_mm512_loadu_si512(q + i), magnitude);
        greatest = _mm512_max_epu32(greatest, x);
        sum = _mm512_add_ps(sum, _mm512_castsi512_ps(x));
      }
      const auto largest = static_cast<int>(_mm512_reduce_max_epu32(greatest));
      const WordScales scales(
          _mm512_max_ps(UnitExponent(_mm512_castsi512_ps(_mm512_set1_epi32(largest)), 15),
                        UnitExponent(_mm512_set1_ps(_mm512_reduce_add_ps(sum)), kQueryBits)));
      for (int i = 0; i < a.head_dim; i += 32) {
        const __m512 low = _mm512_loadu_ps(q + i);
        const __m512 high = i + 16 < a.head_dim ? _mm512_loadu_ps(q + i + 16) : _mm512_setzero_ps();
        _mm512_storeu_si512(out + i / 2,
                            AsWords(_mm512_permutex2var_ps(low, evens, high),
                                    _mm512_permutex2var_ps(low, odds, high), scales.up));
      }
      const float down = _mm512_cvtss_f32(scales.down);
      __builtin_memcpy(out + a.head_dim / 2, &down, sizeof(down));
    }
  }

  // The tile's keys of `range` as words in k_tile: [head_dim / 2, kKeyTileStride] by key - tile.
  // What lies around them can be read and means nothing.
  static void Keys(const SegmentArgs& a, int32_t tile, TileRange range,
                   float (&scales)[kTileKeys + 16]) {
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                const std::byte* const head = piece.k + a.head_offset;
                const int at = key - tile;
                if (a.type == KvElementType::kF16) {
                  PackKeys(a, F16Keys(head, token, a.chunk_tokens), count, at, scales + at);
                } else {
                  PackKeys(a, Bf16Keys(head, token, a.chunk_tokens), count, at, scales + at);
                }
              });
  }

  // The tile's values of `range` as words in v_tile: [kTileKeys / 2, o_stride], row 16 g + l having
  // keys 32 g + l and 32 g + 16 + l, zeros for those that `range` does not have. False where some
  // are no finite numbers: then nothing else can be said of what shares their scale.
  static bool Values(const SegmentArgs& a, int32_t tile, TileRange range,
                     float (&scales)[kMostHeadDim]) {
    const int begin = range.begin - tile, end = range.end - tile;
    return a.type == KvElementType::kF16
               ? PackValues(a, RowsOf<F16Values>(a, tile, range), begin, end, 0, scales)
               : PackValues(a, RowsOf<Bf16Values>(a, tile, range), begin, end, 0, scales);
  }

  // o += weight(key) V of the tile's keys of `range` that the row sees, one by one.
  template <class Weight>
  static void AddValues(const SegmentArgs& a, int32_t tile, TileRange range, int row,
                        const Weight& weight) {
    a.type == KvElementType::kF16
        ? AddRows(a, RowsOf<F16Values>(a, tile, range), tile, range, row, weight)
        : AddRows(a, RowsOf<Bf16Values>(a, tile, range), tile, range, row, weight);
  }

 protected:
  alignas(64) static constexpr uint32_t kZeros[kMostHeadDim] = {};

  template <class Loader>
  static void PackKeys(const SegmentArgs& a, const Loader keys, int count, int at, float* scales) {
    const int pairs = a.head_dim / 2;
    auto* const out = reinterpret_cast<uint32_t*>(a.k_tile) + at;
    __m512 even, odd;
    for (int j = 0; j < count; j += 16) {
      const WordScales by(UnitExponent(keys.Greatest(a.head_dim, j), kKeyBits));
      _mm512_storeu_ps(scales + j, by.down);
      for (int i = 0; i < pairs; ++i) {
        keys.Load(i, j, even, odd);
        _mm512_storeu_si512(out + i * int64_t{kKeyTileStride} + j, AsWords(even, odd, by.up));
      }
    }
  }

  template <class Rows>
  static Rows RowsOf(const SegmentArgs& a, int32_t tile, TileRange range) {
    Rows rows;
    for (int j = 0; j < range.begin - tile; ++j) rows.SetZeros(j, kZeros);
    for (int j = range.end - tile; j < kTileKeys; ++j) rows.SetZeros(j, kZeros);
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                for (int j = 0; j < count; ++j) {
                  rows.Set(key - tile + j, piece.v + a.head_offset, token + j, a.head_dim);
                }
              });
    return rows;
  }

  template <class Rows, class Weight>
  static void AddRows(const SegmentArgs& a, const Rows& rows, int32_t tile, TileRange range,
                      int row, const Weight& weight) {
    const int32_t end = Least(range.end, a.row_limits[row]);
    float* const o = a.o + row * a.o_stride;
    for (int32_t key = range.begin; key < end; ++key) {
      const int32_t index = key - a.segment_begin;
      if (a.row_oldest != nullptr && a.positions[index] <= a.row_oldest[row]) continue;
      const __m512 p = _mm512_set1_ps(weight(index));
      for (int i = 0; i < a.head_dim; i += 16) {
        _mm512_storeu_ps(o + i,
                         _mm512_fmadd_ps(p, rows.Load(key - tile, i), _mm512_loadu_ps(o + i)));
      }
    }
  }

  template <class Rows>
  static bool PackValues(const SegmentArgs& a, const Rows& rows, int begin, int end, int i,
                         float* scales) {
    auto* const out = reinterpret_cast<uint32_t*>(a.v_tile);
    __mmask16 not_finite = 0;
    for (; i < a.head_dim; i += 16) {
      const WordScales by(UnitExponent(rows.Greatest(begin, end, i), kValueBits));
      _mm512_storeu_ps(scales + i, by.down);
      constexpr int kNaNOrInfinity = 0x99;
      not_finite |= _mm512_fpclass_ps_mask(by.down, kNaNOrInfinity);
      for (int g = 0; g < kTileKeys / 32; ++g) {
        for (int l = 0; l < 16; ++l) {
          const int j = 32 * g + l;
          _mm512_storeu_si512(out + (16 * g + l) * a.o_stride + i,
                              AsWords(rows.Load(j, i), rows.Load(j + 16, i), by.up));
        }
      }
    }
    return not_finite == 0;
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORD_OPERANDS_H_
