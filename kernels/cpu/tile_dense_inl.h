// Weights of bf16 multiplied by AMX tiles, for inclusion by the files of single instruction-set
// levels only. A template over the tiles of amx_tiles.h.

#ifndef REFRAIN_KERNELS_CPU_TILE_DENSE_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_DENSE_INL_H_

#include <cstdint>

#include "kernels/cpu/tile_blocks_inl.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_product_inl.h"

namespace refrain::kernels::cpu {

// Steps `block` of one or two panels, of which w.high is the first.
template <class Tiles>
void MultiplyDensePanels(const TilePanels& w, const TileRows& x, const TileRange& range,
                         StepRange block, float* kept) {
  const int64_t all = block.end - block.begin;
  // The sums of a single block of rows stay in tiles.
  const int64_t stretches =
      PanelProduct<Tiles>::BlocksOf(range) == 1 ? 1 : (all + kStretchSteps - 1) / kStretchSteps;
  for (int64_t stretch = 0; stretch < stretches; ++stretch) {
    const int64_t step = block.begin + stretch * all / stretches;
    const int64_t end = block.begin + (stretch + 1) * all / stretches;
    const TilePanels panels = {w.high + step * kTileElements, nullptr, w.panel_elements};
    const PanelSums sums = {kept, stretch > 0, stretch + 1 < stretches};
    PanelProduct<Tiles> product(x, range, panels, step, end - step, sums);
    range.tile_end - range.tile_begin == 2 ? product.template Run<2>(NothingAhead())
                                           : product.template Run<1>(NothingAhead());
  }
}

template <class Tiles>
void MultiplyDenseByTiles(const TilePanels& w, const TileRows& x, const TileRange& range) {
  alignas(64) float kept[kSumRows / kTileRows * 2 * kTileRows * kTileRows];
  ConfigureWholeTiles<Tiles>();
  ForBlocks(range, x.steps, [&](const TileRange& part, StepRange block) {
    for (int64_t tile = part.tile_begin; tile < part.tile_end; tile += 2) {
      const int64_t tiles = part.tile_end - tile < 2 ? 1 : 2;
      TilePanels panels = w;
      panels.high += tile * w.panel_elements;
      MultiplyDensePanels<Tiles>(panels, x, TilesOf(part, tile, tiles), block, kept);
    }
  });
  // Left in use, the tiles would be saved at every context switch.
  Tiles::Release();
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_DENSE_INL_H_
