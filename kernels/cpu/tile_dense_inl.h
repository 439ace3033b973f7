// Weights of bf16 multiplied by AMX tiles, for inclusion by the files of single instruction-set
// levels only. A template over the tiles of amx_tiles.h.

#ifndef REFRAIN_KERNELS_CPU_TILE_DENSE_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_DENSE_INL_H_

#include <cstdint>

#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_product_inl.h"

namespace refrain::kernels::cpu {

template <class Tiles>
void MultiplyDenseByTiles(const TilePanels& w, const TileRows& x, const TileRange& range) {
  ConfigureWholeTiles<Tiles>();
  for (int64_t tile = range.tile_begin; tile < range.tile_end; tile += 2) {
    const int64_t tiles = range.tile_end - tile < 2 ? 1 : 2;
    TilePanels panels = w;
    panels.high += tile * w.panel_elements;
    const TileRange part = TilesOf(range, tile, tiles);
    PanelProduct<Tiles> product(x, part, panels, 0, x.steps, range.accumulate);
    tiles == 2 ? product.template Run<2>(NothingAhead()) : product.template Run<1>(NothingAhead());
  }
  // Left in use, the tiles would be saved at every context switch.
  Tiles::Release();
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_DENSE_INL_H_
