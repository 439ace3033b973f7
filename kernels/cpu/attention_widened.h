#ifndef REFRAIN_KERNELS_CPU_ATTENTION_WIDENED_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_WIDENED_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/attention_widening.h"

// The products of a segment for many rows (prefill, shared chunks), over a level's vector type S:
// tiles of K and V are widened once for all rows. Include only from files that are compiled for one
// level.
namespace refrain::kernels::cpu {

template <class S>
class AttentionWidened {
 public:
  static void Scores(const SegmentArgs& a) {
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      float* const scores = a.scores + (tile - a.segment_begin);
      if (outside) return FillUnseen(a, tile);
      const uint16_t* const halves = FirstBlockConverts(a, range, &KeyPiece::k, 1);
      if (halves == nullptr) WidenedTiles<S>::Keys(a, tile, range);
      const int columns = DivideUp(range.end - tile, V * L);
      TileAhead ahead(a, range, &KeyPiece::k, a.pieces->v,
                      int64_t{DivideUp(a.num_rows, R)} * columns * a.head_dim);
      ForRowBlocks(a.num_rows, R, [&](int row, int rows) {
        const int32_t end = BlockEnd(a, range, row, rows);
        for (int32_t i = 0; i < end - tile; i += V * L) {
          const int vectors = Least(V, DivideUp(end - tile - i, L));
          const float* const q = a.q + row * a.q_stride;
          float* const out = scores + row * static_cast<int64_t>(kScoreStride) + i;
          if (row == 0 && halves != nullptr) {
            Dispatch<ScoreFirst>(rows, vectors, q, a.q_stride, a.head_dim, halves + i,
                                 int64_t{a.chunk_tokens}, out, ahead.Take(a.head_dim),
                                 KeepCopy{a.k_tile + i, kKeyTileStride});
            continue;
          }
          Dispatch<ScoreWidened>(rows, vectors, q, a.q_stride, a.head_dim,
                                 static_cast<const float*>(a.k_tile) + i, int64_t{kKeyTileStride},
                                 out, ahead.Take(a.head_dim), KeepNothing{});
        }
      });
    });
  }

  static void Values(const SegmentArgs& a) {
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return;  // all weights are 0
      const uint16_t* const halves = FirstBlockConverts(a, range, &KeyPiece::v, a.head_dim);
      if (halves == nullptr) WidenedTiles<S>::Values(a, tile, range);
      const int skip = range.begin - tile;
      const int columns = DivideUp(a.head_dim, V * L);
      TileAhead ahead(a, range, &KeyPiece::v, KeysBehind(a),
                      int64_t{DivideUp(a.num_rows, R)} * columns * (range.end - range.begin));
      ForRowBlocks(a.num_rows, R, [&](int row, int rows) {
        const int keys = BlockEnd(a, range, row, rows) - range.begin;
        if (keys <= 0) return;
        const float* const p =
            a.scores + row * static_cast<int64_t>(kScoreStride) + (range.begin - a.segment_begin);
        for (int i = 0; i < a.o_stride; i += V * L) {
          const int vectors = Least(V, DivideUp(a.head_dim - i, L));
          if (vectors <= 0) break;
          float* const o = a.o + row * a.o_stride + i;
          if (row == 0 && halves != nullptr) {
            Dispatch<ValueFirst>(rows, vectors, p, keys, halves + i, int64_t{a.head_dim}, o,
                                 a.o_stride, ahead.Take(keys), KeepCopy{a.v_tile + i, a.o_stride});
            continue;
          }
          Dispatch<ValueWidened>(rows, vectors, p, keys,
                                 static_cast<const float*>(a.v_tile) + skip * a.o_stride + i,
                                 a.o_stride, o, a.o_stride, ahead.Take(keys), KeepNothing{});
        }
      });
    });
  }

 private:
  using F = typename S::F;
  static constexpr int L = S::kLanes;
  static constexpr int R = S::kTileRows;
  static constexpr int V = S::kTileVectors;

  template <int A, int B>
  using ScoreWidened = ScoreTile<S, float, FetchEvenly, KeepNothing, A, B>;
  template <int A, int B>
  using ScoreFirst = ScoreTile<S, uint16_t, FetchEvenly, KeepCopy, A, B>;
  template <int A, int B>
  using ValueWidened = ValueTile<S, float, FetchEvenly, KeepNothing, A, B>;
  template <int A, int B>
  using ValueFirst = ValueTile<S, uint16_t, FetchEvenly, KeepCopy, A, B>;

  template <template <int, int> class Tile, class... Args>
  static void Dispatch(int rows, int vectors, Args... args) {
    DispatchTile<Tile, R, V>(rows, vectors, args...);
  }

  // Where a whole tile of f16 lies in one chunk and the first register block sees all of it, that
  // block converts as it multiplies and leaves the copy for the others: loads from beyond the first
  // cache then wait beside products and not before them. The tile's first element, or null where it
  // has to be widened beforehand. `token_stride`: elements from one token to the next.
  static const uint16_t* FirstBlockConverts(const SegmentArgs& a, TileRange range,
                                            std::byte const* KeyPiece::*kv, int token_stride) {
    if (a.type != KvElementType::kF16 || a.head_dim % L != 0) return nullptr;
    const int first_rows = DivideUp(a.num_rows, DivideUp(a.num_rows, R));
    if (range.end - range.begin != kTileKeys || a.row_limits[first_rows - 1] < range.end) {
      return nullptr;
    }
    const KeyPiece* piece = a.pieces;
    while (piece->begin + piece->count <= range.begin) ++piece;
    if (piece->begin + piece->count < range.end) return nullptr;
    const int token = piece->token + range.begin - piece->begin;
    return reinterpret_cast<const uint16_t*>(piece->*kv + a.head_offset) +
           int64_t{token} * token_stride;
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_WIDENED_H_
