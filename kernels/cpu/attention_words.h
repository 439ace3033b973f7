#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WORDS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WORDS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/attention_widened.h"
#include "kernels/cpu/attention_word_operands.h"
#include "kernels/cpu/attention_word_softmax.h"
#include "kernels/cpu/attention_word_tile.h"
#include "kernels/cpu/simd_avx512.h"

// A segment of attention for many rows (prefill, shared chunks) by products of 16-bit integers, K
// and V in f16 or in bf16 pairs: for processors that add up twice as many of these as of f32, and
// have no fast bf16 dot products. Each row of q, each key and each element of a tile's values has a
// power of two for its scale (attention_word_operands.h), the sums of a tile are exact, and from
// tile to tile they are f32. What is lost is about what rounding to bf16 loses. A template over the
// instruction, so that tests run it elsewhere. Include only from files that are compiled for one
// level.
//   struct I {
//     // sums[l] + x[2l] w[2l] + x[2l + 1] w[2l + 1] of signed words
//     static __m512i Dot(__m512i sums, __m512i x, __m512i w);
//   };
// Operands is WordOperands, or what makes the same of K and V with other instructions.
namespace refrain::kernels::cpu {

template <class I, class Operands = WordOperands>
class AttentionWords {
 public:
  // The scales hang on what else is in a tile, and few rows do not pay for making words.
  static bool Takes(const SegmentArgs& a) {
    return a.type != KvElementType::kF32 && !a.any_row_count && a.num_rows >= kMinRows &&
           a.head_dim % 16 == 0 && a.head_dim <= WordOperands::kMostHeadDim;
  }

  static void Segment(const SegmentArgs& a) {
    WordOperands::Queries(a);
    Scores(a);
    WordSoftmax<I>::Run(a);
    Values(a);
  }

 private:
  static constexpr int kMinRows = 24;
  static constexpr int R = Avx512::kTileRows;
  static constexpr int V = Avx512::kTileVectors;

  template <int A, int B>
  using ScoreTileOf = WordTile<I, FetchEvenly, PutScores, A, B>;
  template <int A, int B>
  using FirstValueTileOf = WordTile<I, FetchEvenly, PutOutput<true>, A, B>;
  template <int A, int B>
  using ValueTileOf = WordTile<I, FetchEvenly, PutOutput<false>, A, B>;

  static void Scores(const SegmentArgs& a) {
    const int64_t stride = WordOperands::QueryStride(a);
    const int steps = a.head_dim / 2;
    const auto* const q = reinterpret_cast<const uint32_t*>(a.q_pairs);
    const auto* const keys = reinterpret_cast<const uint32_t*>(a.k_tile);
    float key_scales[kTileKeys + 16] = {};
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return FillUnseen(a, tile);
      Operands::Keys(a, tile, range, key_scales);
      TileAhead ahead(a, range, &KeyPiece::k, a.pieces->v,
                      int64_t{DivideUp(a.num_rows, R)} * steps);
      ForRowBlocks(a.num_rows, R, [&](int row, int rows) {
        const int vectors = DivideUp(BlockEnd(a, range, row, rows) - tile, 16);
        if (vectors <= 0) return;
        const uint32_t* const x = q + row * stride;
        const PutScores to = {a.scores + row * int64_t{kScoreStride} + (tile - a.segment_begin),
                              reinterpret_cast<const float*>(x + steps), stride, key_scales};
        DispatchTile<ScoreTileOf, R, V>(rows, vectors, x, stride, steps,
                                        PairMatrix{keys, kKeyTileStride}, ahead.Take(steps), to);
      });
    });
  }

  // Steps over the pairs of a tile that have one of its first `keys` keys.
  static int StepsOf(int keys) { return keys / 32 * 16 + Least(keys % 32, 16); }

  static void ClearOutput(const SegmentArgs& a) {
    for (int64_t i = 0; i < a.num_rows * a.o_stride; i += 16) {
      _mm512_storeu_ps(a.o + i, _mm512_setzero_ps());
    }
  }

  static void Values(const SegmentArgs& a) {
    const auto* const values = reinterpret_cast<const uint32_t*>(a.v_tile);
    float column_scales[WordOperands::kMostHeadDim];
    bool first = true;  // nothing is in o yet
    const int32_t exact = WordSoftmax<I>::EndOfExact(a);
    if (exact > 0) {
      ClearOutput(a);
      SegmentArgs tile = a;
      tile.hi = exact;
      AttentionWidened<Avx512>::Values(tile);
      first = false;
    }
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside || tile < exact) return;  // all weights are 0, or it has been done
      if (!Operands::Values(a, tile, range, column_scales)) {
        if (first) ClearOutput(a);
        first = false;
        for (int row = 0; row < a.num_rows; ++row) {
          WordOperands::AddValues(a, tile, range, row,
                                  [&](int32_t key) { return WordSoftmax<I>::Weight(a, row, key); });
        }
        return;
      }
      const int columns = DivideUp(a.head_dim, 16 * V);
      TileAhead ahead(a, range, &KeyPiece::v, KeysBehind(a),
                      int64_t{DivideUp(a.num_rows, R)} * columns * StepsOf(range.end - tile));
      ForRowBlocks(a.num_rows, R, [&](int row, int rows) {
        const int steps = StepsOf(Most(BlockEnd(a, range, row, rows) - tile, 0));
        if (steps == 0) return;  // nor in a later tile
        const int key = tile - a.segment_begin;
        const auto multiply = [&]<bool kFirst, template <int, int> class Tile>() {
          for (int i = 0; i < a.head_dim; i += 16 * V) {
            const PutOutput<kFirst> to = {a.o + row * a.o_stride + i, a.o_stride,
                                          WordSoftmax<I>::Unit(a, row, key), column_scales + i};
            DispatchTile<Tile, R, V>(rows, Least(V, DivideUp(a.head_dim - i, 16)),
                                     WordSoftmax<I>::Words(a, row, key), int64_t{kScoreStride},
                                     steps, PairMatrix{values + i, a.o_stride}, ahead.Take(steps),
                                     to);
          }
        };
        if (first) {
          multiply.template operator()<true, FirstValueTileOf>();
        } else {
          multiply.template operator()<false, ValueTileOf>();
        }
      });
      first = false;
    });
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WORDS_H_
