#ifndef REFRAIN_KERNELS_CPU_ATTENTION_AMX_TILE_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_AMX_TILE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attention_amx_block.h"
#include "kernels/cpu/attention_amx_values.h"
#include "kernels/cpu/attention_amx_weights.h"
#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/attention_pairs.h"

// A segment of attention by AMX tiles: 32 rows at a time, x 32 keys or x 32 output elements. A
// template over the instructions of attention_dot.h and of amx_tiles.h. Include only from files
// that are compiled for one level.
//
// All tiles have 16 rows of 64 bytes. Where rows end inside a tile, what lies behind them in the
// scratch is multiplied too and thrown away: rows of a tile do not meet.
namespace refrain::kernels::cpu {

template <class I, class Tiles>
class AttentionAmx {
 public:
  // The order of sums differs from that of AttentionDot, which serves few rows.
  static bool Takes(const SegmentArgs& a) {
    return a.type == KvElementType::kBF16Pairs && !a.any_row_count && a.num_rows >= kMinRows &&
           (a.num_rows > kFewRows || a.hi - a.begin > kShortKeys);
  }

  static void Segment(const SegmentArgs& a) {
    AttentionDot<I>::RoundQueries(a);
    AmxTileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = kRows;
      config.row_bytes[tile] = 64;
    }
    Tiles::Configure(config);
    AmxTileValues values[kMaxSegmentKeys / kTileKeys];
    const int tiles = CollectValues(a, values);
    // All three passes block by block, in the scores of the first: they stay in the nearest caches.
    for (int row = 0; row < a.num_rows; row += 2 * kRows) {
      const SegmentArgs block = BlockOf(a, row);
      // What the first one reads comes from memory, and what it asks for serves the others.
      row == 0 ? Weights<true>(block) : Weights<false>(block);
      row == 0 ? Values<true>(block, values, tiles) : Values<false>(block, values, tiles);
    }
    // Left in use, the tiles would be saved at every context switch.
    Tiles::Release();
  }

 private:
  // Dot products of fewer are done before a tile is loaded; and those of few over few keys, whose
  // next keys the hardware sees coming in the order in which dot products read them.
  static constexpr int kMinRows = 4;
  static constexpr int kFewRows = 6;
  static constexpr int kShortKeys = 256;
  static constexpr int kStepKeys = AmxTileValues::kStepKeys;

  using Block = AmxBlock<Tiles>;
  static constexpr int kRows = Block::kRows;
  static constexpr int kColumns = Block::kColumns;
  static constexpr int kPairs = Block::kPairs;

  // The one or two tiles of rows from `row` on.
  static SegmentArgs BlockOf(const SegmentArgs& a, int row) {
    SegmentArgs block = a;
    block.num_rows = Least(a.num_rows - row, 2 * kRows);
    block.q_pairs += int64_t{row} * AttentionDot<I>::QueryStride(a);
    block.row_limits += row;
    if (a.row_oldest != nullptr) block.row_oldest += row;
    block.states += row;
    block.o += row * a.o_stride;
    return block;
  }

  // Weights where a.scores are, and the rows' states.
  template <bool kFetch>
  static void Weights(const SegmentArgs& a) {
    const bool all_seen =
        a.row_oldest == nullptr && a.begin == a.segment_begin && a.row_limits[0] >= a.hi;
    if (all_seen && WeightsWithScores<kFetch>(a)) return;
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return FillUnseen(a, tile);
      Scores<kFetch>(a, range, a.scores + (range.begin - a.segment_begin), kScoreStride);
    });
    AttentionDot<I>::Softmax(a);
  }

  // The weights of a tile of keys behind the scores of the next one. False: they are not right.
  template <bool kFetch>
  static bool WeightsWithScores(const SegmentArgs& a) {
    WeightsInPassing<I> weights;
    ForTiles(a, [&](int32_t tile, TileRange range, bool) {
      const int32_t begin = tile - a.segment_begin;
      Scores<kFetch>(a, range, weights.scores(begin), kTileKeys);
      if (begin > 0) weights.Take(a, begin - kTileKeys, kTileKeys);
    });
    const int32_t keys = a.hi - a.segment_begin;
    const int32_t last = (keys - 1) / kTileKeys * kTileKeys;
    weights.Take(a, last, keys - last);
    return weights.Finish(a);
  }

  // Of a tile of keys, into `out` from the first of them on.
  template <bool kFetch>
  static void Scores(const SegmentArgs& a, TileRange range, float* out, int64_t out_stride) {
    const int stride = AttentionDot<I>::QueryStride(a);
    const auto* const q = reinterpret_cast<const uint32_t*>(a.q_pairs);
    const int columns = BlockEnd(a, range, 0, a.num_rows) - range.begin;
    if (columns <= 0) return;
    const PairMatrix keys = KeysOf(a, range, stride);
    const int steps = stride / kPairs;
    TileAhead ahead(a, range, &KeyPiece::k, a.pieces->v,
                    int64_t{DivideUp(columns, 2 * kColumns)} * steps);
    for (int i = 0; i < columns; i += 2 * kColumns) {
      Block::Dispatch(a.num_rows, columns - i, [&]<int kHalves, int kPanels>() {
        Block::template Zero<kHalves, kPanels>();
        Block::template Multiply<kHalves, kPanels>(q, stride, steps,
                                                   PairMatrix{keys.p + i, keys.stride},
                                                   Block::template Take<kFetch>(ahead, steps));
        Block::template Store<kHalves, kPanels>(out + i, out_stride, a.num_rows);
      });
    }
  }

  // The sums stay in tiles over the whole segment.
  template <bool kFetch>
  static void Values(const SegmentArgs& a, const AmxTileValues* values, int tiles) {
    const int end = Least(a.hi, a.row_limits[a.num_rows - 1]) - a.segment_begin;
    const auto* const p = reinterpret_cast<const uint32_t*>(a.scores);
    for (int i = 0; i < a.o_stride; i += 2 * kColumns) {
      Block::Dispatch(a.num_rows, a.o_stride - i, [&]<int kHalves, int kPanels>() {
        Block::template Zero<kHalves, kPanels>();
        for (int t = 0; t < tiles && t * kTileKeys < end; ++t) {
          const AmxTileValues& v = values[t];
          if (!v.seen) continue;
          const int steps = DivideUp(Least(end - t * kTileKeys, kTileKeys), kStepKeys);
          const int in_place = Least(steps, v.steps_in_place);
          const int32_t begin = a.segment_begin + t * kTileKeys;
          TileAhead ahead(a, {begin, Least(begin + kTileKeys, a.hi)}, &KeyPiece::v, KeysBehind(a),
                          i == 0 ? steps : 1 << 20);
          const uint32_t* const weights = p + t * kTileKeys / 2;
          Block::template Multiply<kHalves, kPanels>(
              weights, kScoreStride, in_place, PairMatrix{v.in_place.p + i, v.in_place.stride},
              Block::template Take<kFetch>(ahead, in_place));
          if (in_place == steps) continue;
          Block::template Multiply<kHalves, kPanels>(
              weights + in_place * kPairs, kScoreStride, steps - in_place,
              PairMatrix{v.copy.p + i, v.copy.stride},
              Block::template Take<kFetch>(ahead, steps - in_place));
        }
        Block::template Store<kHalves, kPanels>(a.o + i, a.o_stride, a.num_rows);
      });
    }
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_AMX_TILE_H_
