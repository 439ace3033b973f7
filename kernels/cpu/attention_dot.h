#ifndef REFRAIN_KERNELS_CPU_ATTENTION_DOT_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_DOT_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_dot_tile.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_lines_ahead.h"
#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/simd_math.h"

// A segment of attention by bf16 dot products, K and V in bf16 pairs. A template over the
// instructions, so that tests run it on an emulation (bf16_instructions.h has the hardware's). The
// passes are those of attention_loops.h; nothing is widened. Include only from files that are
// compiled for one level.
//   struct I {
//     // sums[l] + x[2l + 1] w[2l + 1], then + x[2l] w[2l]
//     static __m512 Dot(__m512 sums, __m512i x, __m512i w);
//     // 32 floats rounded to bf16, `low` in the lower half
//     static __m512i Round(__m512 low, __m512 high);
//   };
namespace refrain::kernels::cpu {

// Weights rounded to bf16, from the begin of the row on where the scores were: key i of the segment
// is bf16 element i of the row. What is summed up are the rounded ones, so that weights of any
// rounding still add up to 1.
template <class I>
struct WeightsAsBf16 {
  static constexpr int kKeys = 64;

  static void Put(float* scores, int i, const __m512 (&weights)[4], __m512 (&sums)[4]) {
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    auto* const out = reinterpret_cast<uint16_t*>(scores) + i;  // behind what is still read
    const __m512i low = I::Round(weights[0], weights[1]);
    const __m512i high = I::Round(weights[2], weights[3]);
    _mm512_storeu_si512(out, low);
    _mm512_storeu_si512(out + 32, high);
    sums[0] = I::Dot(sums[0], low, ones);
    sums[1] = I::Dot(sums[1], high, ones);
  }

  // Whole groups of keys: products go over whole pairs and tiles.
  static void Clear(float* scores, int begin, int end) {
    auto* const out = reinterpret_cast<uint16_t*>(scores);
    for (int i = begin / kKeys * kKeys; i < end; i += kKeys) {
      _mm512_storeu_si512(out + i, _mm512_setzero_si512());
      _mm512_storeu_si512(out + i + 32, _mm512_setzero_si512());
    }
  }

  static __m512 Power(__m512 x) { return Exp2Coarse<Avx512>(x); }
};

template <class I>
class AttentionDot {
 public:
  static void Segment(const SegmentArgs& a) {
    RoundQueries(a);
    if (a.num_rows > R) {
      ScoresOfMany(a);
      Softmax(a);
      ValuesOfMany(a);
    } else if (a.ahead_to_first_level) {
      FewRows<FirstLevelCache>(a);
    } else {
      FewRows<SecondLevelCache>(a);
    }
  }

  // Pairs from one rounded row of q to the next.
  static int QueryStride(const SegmentArgs& a) {
    return DivideUp(a.head_dim, kQueryPadElements) * (kQueryPadElements / 2);
  }

  // q_pairs = q in bf16, zeros behind head_dim.
  static void RoundQueries(const SegmentArgs& a) {
    auto* out = reinterpret_cast<uint32_t*>(a.q_pairs);
    for (int r = 0; r < a.num_rows; ++r, out += QueryStride(a)) {
      const float* const q = a.q + r * a.q_stride;
      for (int i = 0; i < a.head_dim; i += 32) {
        _mm512_storeu_si512(out + i / 2,
                            I::Round(Load(q, i, a.head_dim), Load(q, i + 16, a.head_dim)));
      }
    }
  }

  static void Softmax(const SegmentArgs& a) { AttentionSoftmax<Avx512, WeightsAsBf16<I>>::Run(a); }

 private:
  static constexpr int R = Avx512::kTileRows;
  static constexpr int V = Avx512::kTileVectors;

  template <int A, int B>
  using ScoreMany = DotTile<I, FetchEvenly, true, A, B>;
  template <int A, int B>
  using ValueMany = DotTile<I, FetchEvenly, false, A, B>;
  template <int A, int B>
  using FirstValueMany = DotTile<I, FetchEvenly, true, A, B>;

  template <template <int, int> class Tile, class... Args>
  static void Dispatch(int rows, int vectors, Args... args) {
    DispatchTile<Tile, R, V>(rows, vectors, args...);
  }

  static __m512 Load(const float* q, int i, int head_dim) {
    if (i + 16 <= head_dim) return _mm512_loadu_ps(q + i);
    return i < head_dim ? Avx512::LoadN(q + i, head_dim - i) : _mm512_setzero_ps();
  }

  static const uint32_t* Queries(const SegmentArgs& a, int row) {
    return reinterpret_cast<const uint32_t*>(a.q_pairs) + int64_t{row} * QueryStride(a);
  }

  // The weights of the pairs from key `begin` on.
  static const uint32_t* Weights(const SegmentArgs& a, int row, int32_t begin) {
    return reinterpret_cast<const uint32_t*>(a.scores) + int64_t{row} * kScoreStride +
           (begin - a.segment_begin) / 2;
  }

  // Asks for o of the rows [row, row + rows) while there is still something to compute: what waits
  // between the phases was last read by other threads, and stores that miss fill the store buffer.
  [[gnu::always_inline]] static void AskForOutput(const SegmentArgs& a, int row, int rows) {
    float* const o = a.o + row * a.o_stride;
    for (int64_t i = 0; i < rows * a.o_stride; i += 16) PrefetchToWrite(o + i);
  }

  // `Cache` is asked for what is read soon.
  template <class Cache>
  static void FewRows(const SegmentArgs& a) {
    LinesAheadTo<Cache> ahead(a);
    ScoresOfFew(a, ahead);
    Softmax(a);
    ValuesOfFew(a, ahead);
    ahead.AskForRest();
  }

  // The tiles of few rows.
  template <class Cache>
  struct Few {
    using Reader = typename LinesAheadTo<Cache>::template Reader<uint32_t>;
    template <int A, int B>
    using Score = DotTile<I, Reader, true, A, B>;
    template <int A, int B>
    using Value = DotTile<I, Reader, false, A, B>;
  };

  // Piece by piece, in place: memory is the limit.
  template <class Cache>
  static void ScoresOfFew(const SegmentArgs& a, LinesAheadTo<Cache>& ahead) {
    ForPieces(a, a.begin, a.hi, [&](const KeyPiece& piece, int token, int32_t key, int count) {
      const std::byte* const k = piece.k + a.head_offset;
      for (int i = 0; i < count; i += 16 * V) {
        Dispatch<Few<Cache>::template Score>(
            a.num_rows, Least(V, DivideUp(count - i, 16)), Queries(a, 0), int64_t{QueryStride(a)},
            a.head_dim / 2, PairMatrix{Pairs(k) + token + i, a.chunk_tokens},
            a.scores + (key + i - a.segment_begin), int64_t{kScoreStride},
            ahead.template reader<uint32_t>());
      }
    });
  }

  static void ScoresOfMany(const SegmentArgs& a) {
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return FillUnseen(a, tile);
      const PairMatrix keys = KeysOf(a, range, a.head_dim / 2);
      TileAhead ahead(a, range, &KeyPiece::k, a.pieces->v,
                      int64_t{DivideUp(a.num_rows, R)} * (a.head_dim / 2));
      ForRowBlocks(a.num_rows, R, [&](int row, int rows) {
        const int vectors = DivideUp(BlockEnd(a, range, row, rows) - range.begin, 16);
        if (vectors <= 0) return;
        Dispatch<ScoreMany>(
            rows, vectors, Queries(a, row), int64_t{QueryStride(a)}, a.head_dim / 2, keys,
            a.scores + row * int64_t{kScoreStride} + (range.begin - a.segment_begin),
            int64_t{kScoreStride}, ahead.Take(a.head_dim / 2));
      });
    });
  }

  // Stretches of pairs that lie in place, and what is between them gathered.
  template <class Cache>
  static void ValuesOfFew(const SegmentArgs& a, LinesAheadTo<Cache>& ahead) {
    for (int64_t i = 0; i < a.num_rows * a.o_stride; i += 16) {
      _mm512_storeu_ps(a.o + i, _mm512_setzero_ps());
    }
    int32_t begin = a.begin - (a.begin - a.segment_begin) % 2;
    while (begin < a.hi) {
      const KeyPiece& piece = PieceOf(a, Most(begin, a.begin));
      const int keys = Least(piece.begin + piece.count, a.hi) - begin;
      int pairs = keys / 2;
      PairMatrix values = {ValuesInPlace(a, begin, begin + 2 * pairs), a.head_dim};
      if (pairs == 0 || values.p == nullptr) {
        pairs = Least(kTileKeys / 2, DivideUp(keys, 2));
        auto* const copy = reinterpret_cast<uint32_t*>(a.v_tile);
        GatherValues(a, begin, pairs, copy);
        values = {copy, a.o_stride};
      }
      for (int i = 0; i < a.head_dim; i += 16 * V) {
        Dispatch<Few<Cache>::template Value>(a.num_rows, Least(V, DivideUp(a.head_dim - i, 16)),
                                             Weights(a, 0, begin), int64_t{kScoreStride}, pairs,
                                             PairMatrix{values.p + i, values.stride}, a.o + i,
                                             a.o_stride, ahead.template reader<uint32_t>());
      }
      begin += 2 * pairs;
    }
  }

  static void ValuesOfMany(const SegmentArgs& a) {
    bool first = true;  // nothing is in o yet
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return;  // all weights are 0
      PairMatrix values = {ValuesInPlace(a, tile, tile + kTileKeys), a.head_dim};
      if (values.p == nullptr) {
        auto* const copy = reinterpret_cast<uint32_t*>(a.v_tile);
        GatherValues(a, tile, DivideUp(range.end - tile, 2), copy);
        values = {copy, a.o_stride};
      }
      const int columns = DivideUp(a.head_dim, 16 * V);
      TileAhead ahead(a, range, &KeyPiece::v, KeysBehind(a),
                      int64_t{DivideUp(a.num_rows, R)} * columns * DivideUp(range.end - tile, 2));
      ForRowBlocks(a.num_rows, R, [&](int row, int rows) {
        const int pairs = DivideUp(BlockEnd(a, range, row, rows) - tile, 2);
        if (pairs <= 0) return;  // nor in a later tile
        const auto multiply = [&]<template <int, int> class Tile>() {
          for (int i = 0; i < a.head_dim; i += 16 * V) {
            Dispatch<Tile>(rows, Least(V, DivideUp(a.head_dim - i, 16)), Weights(a, row, tile),
                           int64_t{kScoreStride}, pairs, PairMatrix{values.p + i, values.stride},
                           a.o + row * a.o_stride + i, a.o_stride, ahead.Take(pairs));
          }
        };
        if (first) {
          AskForOutput(a, row, rows);
          multiply.template operator()<FirstValueMany>();
        } else {
          multiply.template operator()<ValueMany>();
        }
      });
      first = false;
    });
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_DOT_H_
