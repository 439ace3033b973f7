#ifndef REFRAIN_KERNELS_CPU_ATTENTION_BLOCKS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_tiles.h"

// How the products of many rows go over a segment: tiles of kTileKeys keys counted from its begin,
// blocks of rows inside. Include only from files that are compiled for one level.
namespace refrain::kernels::cpu {

namespace {

// Keys that are read of the tile that begins at some key index.
struct TileRange {
  int32_t begin, end;
};

// Whether no row sees any key of the tile.
inline bool OutsideWindow(const SegmentArgs& a, TileRange range) {
  if (a.row_oldest == nullptr) return false;
  int32_t oldest = a.row_oldest[0];
  for (int r = 1; r < a.num_rows; ++r) oldest = Least(oldest, a.row_oldest[r]);
  for (int32_t key = range.begin; key < range.end; ++key) {
    if (a.positions[key - a.segment_begin] > oldest) return false;
  }
  return true;
}

// Calls fn(first key index, range, outside every window) on the tiles that have keys in [begin,
// hi).
template <class Fn>
inline void ForTiles(const SegmentArgs& a, const Fn& fn) {
  for (int32_t tile = a.segment_begin; tile < a.hi; tile += kTileKeys) {
    const TileRange range = {Most(tile, a.begin), Least(tile + kTileKeys, a.hi)};
    if (range.begin < range.end) fn(tile, range, OutsideWindow(a, range));
  }
}

// Behind the last key of the tile that the rows [row, row + rows) see.
inline int32_t BlockEnd(const SegmentArgs& a, TileRange range, int row, int rows) {
  return Least(range.end, a.row_limits[row + rows - 1]);
}

// Calls fn(first_row, rows) on blocks of nearly equal size, `most` rows each.
template <class Fn>
inline void ForRowBlocks(int num_rows, int most, const Fn& fn) {
  const int blocks = DivideUp(num_rows, most);
  for (int b = 0, row = 0; b < blocks; ++b) {
    const int rows = DivideUp(num_rows - row, blocks - b);
    fn(row, rows);
    row += rows;
  }
}

// The scores of a tile that no row sees, for all rows.
inline void FillUnseen(const SegmentArgs& a, int32_t tile) {
  for (int r = 0; r < a.num_rows; ++r) {
    float* const row = a.scores + r * static_cast<int64_t>(kScoreStride) + (tile - a.segment_begin);
    for (int i = 0; i < kTileKeys; ++i) row[i] = MinusInfinity();
  }
}

// What the tile behind `range` is read from: each register tile of this one asks for a part, all of
// it or some lines more for chunks of up to kTileKeys tokens, a fair guess beyond.
class TileAhead {
 public:
  // After the segment's last tile it is what `wrap` points to (may be null). `steps`: of the
  // inner loops of all register tiles together.
  TileAhead(const SegmentArgs& a, TileRange range, std::byte const* KeyPiece::*kv,
            const std::byte* wrap, int64_t steps) {
    const std::byte* next = wrap;
    if (range.end < a.hi) {
      const KeyPiece* piece = a.pieces;
      while (piece->begin + piece->count <= range.end) ++piece;
      next = piece->*kv;
    }
    if (next == nullptr) return;
    const int element_bytes = a.type == KvElementType::kF32 ? 4 : 2;
    const int64_t bytes = int64_t{Least(a.chunk_tokens, kTileKeys)} * a.head_dim * element_bytes;
    next_ = reinterpret_cast<const char*>(next) + a.head_offset;
    step_ = steps == 0 ? 0 : (bytes + steps - 1) / steps;
    if (step_ > 64) step_ = (step_ + 63) / 64 * 64;
  }

  // The part for a register tile of `steps` steps.
  FetchEvenly Take(int64_t steps) {
    const FetchEvenly part = {next_, step_};
    next_ += steps * step_;
    return part;
  }

 private:
  const char* next_ = reinterpret_cast<const char*>(&step_);  // harmless where nothing follows
  int64_t step_ = 0;
};

}  // namespace

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_BLOCKS_H_
