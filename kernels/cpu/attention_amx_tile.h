#ifndef REFRAIN_KERNELS_CPU_ATTENTION_AMX_TILE_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_AMX_TILE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attention_amx_values.h"
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
      row == 0 ? Scores<true>(block) : Scores<false>(block);
      AttentionDot<I>::Softmax(block);
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
  static constexpr int kRows = 16;     // of a tile
  static constexpr int kColumns = 16;  // of a tile of sums
  static constexpr int kPairs = 16;    // that one tile product goes over
  static constexpr int kStepKeys = AmxTileValues::kStepKeys;
  // Tiles 0 to 3 are sums[row half][column half], 4 and 5 the halves of the left operand, 6 and 7
  // those of the right one.

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

  template <int kHalves, int kPanels>
  static void Zero() {
    Tiles::template Zero<0>();
    if constexpr (kPanels == 2) Tiles::template Zero<1>();
    if constexpr (kHalves == 2) Tiles::template Zero<2>();
    if constexpr (kHalves == 2 && kPanels == 2) Tiles::template Zero<3>();
  }

  struct FetchNothing {
    template <int Elements>
    void Ask(int) const {}
  };
  template <bool kFetch>
  static auto Take(TileAhead& ahead, int steps) {
    if constexpr (kFetch) {
      return ahead.Take(steps);
    } else {
      return FetchNothing();
    }
  }

  // Adds x w over `steps` whole tiles of pairs. `fetch` as TileAhead gives it.
  template <int kHalves, int kPanels, class Fetch>
  static void Multiply(const uint32_t* x, int64_t x_stride, int steps, PairMatrix w, Fetch fetch) {
    const int64_t x_bytes = x_stride * 4;
    const int64_t w_bytes = w.stride * 4;
    for (int i = 0; i < steps; ++i, x += kPairs, w.p += kPairs * w.stride) {
      Tiles::template Load<4>(x, x_bytes);
      Tiles::template Load<6>(w.p, w_bytes);
      fetch.template Ask<kColumns>(i);
      Tiles::template DotBf16<0, 4, 6>();
      if constexpr (kPanels == 2) {
        Tiles::template Load<7>(w.p + kColumns, w_bytes);
        Tiles::template DotBf16<1, 4, 7>();
      }
      if constexpr (kHalves == 2) {
        Tiles::template Load<5>(x + kRows * x_stride, x_bytes);
        Tiles::template DotBf16<2, 5, 6>();
      }
      if constexpr (kHalves == 2 && kPanels == 2) Tiles::template DotBf16<3, 5, 7>();
    }
  }

  // `rows` of the block are stored.
  template <int kHalves, int kPanels>
  static void Store(float* out, int64_t stride, int rows) {
    StoreTile<0>(out, stride, rows);
    if constexpr (kPanels == 2) StoreTile<1>(out + kColumns, stride, rows);
    float* const lower = out + kRows * stride;
    if constexpr (kHalves == 2) StoreTile<2>(lower, stride, rows - kRows);
    if constexpr (kHalves == 2 && kPanels == 2) {
      StoreTile<3>(lower + kColumns, stride, rows - kRows);
    }
  }

  template <int kTile>
  static void StoreTile(float* out, int64_t stride, int rows) {
    if (rows >= kRows) {
      Tiles::template Store<kTile>(out, stride * sizeof(float));
      return;
    }
    alignas(64) float sums[kRows][kColumns];
    Tiles::template Store<kTile>(sums, sizeof(sums[0]));
    for (int r = 0; r < rows; ++r) __builtin_memcpy(out + r * stride, sums[r], sizeof(sums[r]));
  }

  // Calls fn.operator()<halves, panels>(), as many as rows and columns ask for.
  template <class Fn>
  static void Dispatch(int rows, int columns, const Fn& fn) {
    if (rows > kRows) {
      columns > kColumns ? fn.template operator()<2, 2>() : fn.template operator()<2, 1>();
    } else {
      columns > kColumns ? fn.template operator()<1, 2>() : fn.template operator()<1, 1>();
    }
  }

  template <bool kFetch>
  static void Scores(const SegmentArgs& a) {
    const int stride = AttentionDot<I>::QueryStride(a);
    const auto* const q = reinterpret_cast<const uint32_t*>(a.q_pairs);
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return FillUnseen(a, tile);
      const int columns = BlockEnd(a, range, 0, a.num_rows) - range.begin;
      if (columns <= 0) return;
      const PairMatrix keys = KeysOf(a, range, stride);
      float* const out = a.scores + (range.begin - a.segment_begin);
      const int steps = stride / kPairs;
      TileAhead ahead(a, range, &KeyPiece::k, a.pieces->v,
                      int64_t{DivideUp(columns, 2 * kColumns)} * steps);
      for (int i = 0; i < columns; i += 2 * kColumns) {
        Dispatch(a.num_rows, columns - i, [&]<int kHalves, int kPanels>() {
          Zero<kHalves, kPanels>();
          Multiply<kHalves, kPanels>(q, stride, steps, PairMatrix{keys.p + i, keys.stride},
                                     Take<kFetch>(ahead, steps));
          Store<kHalves, kPanels>(out + i, kScoreStride, a.num_rows);
        });
      }
    });
  }

  // The sums stay in tiles over the whole segment.
  template <bool kFetch>
  static void Values(const SegmentArgs& a, const AmxTileValues* values, int tiles) {
    const int end = Least(a.hi, a.row_limits[a.num_rows - 1]) - a.segment_begin;
    const auto* const p = reinterpret_cast<const uint32_t*>(a.scores);
    for (int i = 0; i < a.o_stride; i += 2 * kColumns) {
      Dispatch(a.num_rows, a.o_stride - i, [&]<int kHalves, int kPanels>() {
        Zero<kHalves, kPanels>();
        for (int t = 0; t < tiles && t * kTileKeys < end; ++t) {
          const AmxTileValues& v = values[t];
          if (!v.seen) continue;
          const int steps = DivideUp(Least(end - t * kTileKeys, kTileKeys), kStepKeys);
          const int in_place = Least(steps, v.steps_in_place);
          const int32_t begin = a.segment_begin + t * kTileKeys;
          TileAhead ahead(a, {begin, Least(begin + kTileKeys, a.hi)}, &KeyPiece::v, KeysBehind(a),
                          i == 0 ? steps : 1 << 20);
          const uint32_t* const weights = p + t * kTileKeys / 2;
          Multiply<kHalves, kPanels>(weights, kScoreStride, in_place,
                                     PairMatrix{v.in_place.p + i, v.in_place.stride},
                                     Take<kFetch>(ahead, in_place));
          if (in_place == steps) continue;
          Multiply<kHalves, kPanels>(weights + in_place * kPairs, kScoreStride, steps - in_place,
                                     PairMatrix{v.copy.p + i, v.copy.stride},
                                     Take<kFetch>(ahead, steps - in_place));
        }
        Store<kHalves, kPanels>(a.o + i, a.o_stride, a.num_rows);
      });
    }
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_AMX_TILE_H_
