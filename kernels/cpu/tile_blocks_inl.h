// How a product by AMX tiles is cut, so that what is used again stays in a cache: for inclusion by
// the files of single instruction-set levels only. See tile_kernels.h for the operands.

#ifndef REFRAIN_KERNELS_CPU_TILE_BLOCKS_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_BLOCKS_INL_H_

#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

namespace {  // not over types of the level: each level's own

// The part of `range` in tiles [tile, tile + tiles).
inline TileRange TilesOf(const TileRange& range, int64_t tile, int64_t tiles) {
  TileRange part = range;
  part.tile_begin = tile;
  part.tile_end = tile + tiles;
  return part;
}

// Where the hardware sees what comes next.
struct NothingAhead {
  struct NoLines {
    static constexpr int lines = 0;
    const char* p = nullptr;
  };
  NoLines Take() { return {}; }
};

}  // namespace

// Of k, in panels that several blocks of rows pass by: 36 KiB for two panels, which stay in a
// first-level cache of 48 KiB, since activations are loaded past it.
inline constexpr int64_t kStretchSteps = 18;
// Activations that many panels pass by, in half of a second-level cache of 2 MiB: where a range has
// more, k is taken in blocks, and sums wait in the result from one block to the next.
inline constexpr int64_t kBlockGroupSteps = 1024;
// So many rows at a time: their sums over a stretch are kept, 128 KiB for two panels.
inline constexpr int64_t kSumRows = 1024;

// The sums of two panels between two stretches of k: tiles of 1 KiB, [group][panel][16][16], which
// the second-level cache keeps. In the result itself they would lie far apart, often in the same
// sets of the caches.
struct PanelSums {
  float* kept = nullptr;
  bool before = false;  // sums go on with what is kept, not with zero or the result
  bool after = false;   // sums are kept, not written to the result
};

// All tiles are 16 rows of 64 bytes: rows and columns behind the last are multiplied, too, and
// thrown away.
template <class Tiles>
inline void ConfigureWholeTiles() {
  AmxTileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = kTileRows;
    config.row_bytes[tile] = 64;
  }
  Tiles::Configure(config);
}

// Steps [begin, end) of k.
struct StepRange {
  int64_t begin = 0, end = 0;
};

// Calls fn(range, steps) for the blocks of rows and of k that a product of `range` and all of k is
// made of, in ascending order of k; of a range of no more than two panels, k in one piece.
template <class Fn>
inline void ForBlocks(const TileRange& range, int64_t steps, const Fn& fn) {
  TileRange part = range;
  for (part.row_begin = range.row_begin; part.row_begin < range.row_end;
       part.row_begin += kSumRows) {
    part.row_end =
        range.row_end - part.row_begin > kSumRows ? part.row_begin + kSumRows : range.row_end;
    const int64_t groups = (part.row_end - part.row_begin + kTileRows - 1) / kTileRows;
    const bool many = range.tile_end - range.tile_begin > 2;
    const int64_t blocks = many ? (groups * steps + kBlockGroupSteps - 1) / kBlockGroupSteps : 1;
    for (int64_t block = 0; block < blocks; ++block) {
      part.accumulate = range.accumulate || block > 0;
      fn(part, StepRange{block * steps / blocks, (block + 1) * steps / blocks});
    }
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_BLOCKS_INL_H_
