// Quantised weights unpacked to tiles of bf16 while they are multiplied: for inclusion by the files
// of single instruction-set levels only. V as quantized_kernels_inl.h says, of 16 lanes and
// kShifted; Tiles as amx_tiles.h says.

#ifndef REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_weights_ahead_inl.h"
#include "kernels/cpu/tile_blocks_inl.h"
#include "kernels/cpu/tile_dense_inl.h"
#include "kernels/cpu/tile_product_inl.h"
#include "kernels/cpu/tile_rows_inl.h"
#include "kernels/cpu/tile_unpacking_inl.h"

namespace refrain::kernels::cpu {

template <class V, class Tiles, class T>
class QuantizedTileProduct {
 public:
  QuantizedTileProduct(const QuantizedPanels& w, const TileRows& x, const TileRange& range)
      : w_(w), x_(x), range_(range) {
    static_assert(V::kLanes == kTileRows && V::kShifted);
    for (int64_t group = range.row_begin / kTileRows; group * kTileRows < range.row_end; ++group) {
      exact_ |= x.exact != nullptr && x.exact[group] != 0;
    }
  }

  void Run() {
    ConfigureWholeTiles<Tiles>();
    ForBlocks(range_, w_.blocks, [this](const TileRange& part, StepRange block) {
      for (int64_t tile = part.tile_begin; tile < part.tile_end; tile += 2) {
        if (part.tile_end - tile >= 2) {
          Multiply<2>(TilesOf(part, tile, 2), block);
        } else {
          Multiply<1>(TilesOf(part, tile, 1), block);
        }
      }
    });
    // Left in use, the tiles would be saved at every context switch.
    Tiles::Release();
  }

 private:
  // Steps of k that are unpacked before they are multiplied: what was just stored is not there for
  // a tile to load. A ring of twice as many is enough where no other rows want them.
  static constexpr int64_t kLead = 2;
  static constexpr int64_t kRing = 2 * kLead;
  static_assert((kRing & (kRing - 1)) == 0);

  // Unpacks steps [step, step + steps) of `panels` tiles from `tile` on into tiles i & `mask` of
  // the panels, kLead of them before it is called.
  struct Unpacking {
    QuantizedTileProduct& product;
    int64_t tile;
    int panels;
    int64_t step, steps, mask;

    Unpacking(QuantizedTileProduct& p, int64_t first_tile, int num_panels, int64_t first_step,
              int64_t num_steps, int64_t index_mask)
        : product(p),
          tile(first_tile),
          panels(num_panels),
          step(first_step),
          steps(num_steps),
          mask(index_mask) {
      for (int64_t i = 0; i < kLead; ++i) Unpack(i);
    }

    int64_t operator()(int64_t i) const {
      Unpack(i + kLead);
      return (i & mask) * kTileElements;
    }

    void Unpack(int64_t i) const {
      if (i >= steps) return;
      for (int panel = 0; panel < panels; ++panel) {
        product.exact_ ? product.Unpack<true>(tile + panel, panel, step + i, i & mask)
                       : product.Unpack<false>(tile + panel, panel, step + i, i & mask);
      }
    }
  };

  // Steps `block` of one or two tiles.
  template <int kPanels>
  void Multiply(const TileRange& range, StepRange block) {
    const int64_t tile = range.tile_begin;
    const bool one_block = PanelProduct<Tiles>::BlocksOf(range) == 1 && SameTerms(range);
    const int64_t all = block.end - block.begin;
    // The sums of a single block stay in tiles over all of k.
    const int64_t stretches = one_block ? 1 : (all + kStretchSteps - 1) / kStretchSteps;
    const auto stretch_begin = [&](int64_t stretch) {
      return block.begin + stretch * all / stretches;
    };
    for (int64_t stretch = 0; stretch < stretches; ++stretch) {
      const int64_t step = stretch_begin(stretch);
      const int64_t steps = stretch_begin(stretch + 1) - step;
      const TilePanels panels = {high_[0], exact_ ? low_[0] : nullptr,
                                 kStretchSteps * kTileElements};
      // The next stretch, of the same tiles or of those behind, which the next job has most often.
      const bool last = stretch + 1 == stretches;
      const int64_t next = last ? 0 : stretch + 1;
      const int64_t next_steps = stretch_begin(next + 1) - stretch_begin(next);
      const int64_t next_tile = last ? tile + kPanels : tile;
      const Unpacking unpacking(*this, tile, kPanels, step, steps, one_block ? kRing - 1 : -1);
      const PanelSums sums = {sums_, stretch > 0, !last};
      PanelProduct<Tiles> product(x_, range, panels, step, steps, sums);
      if ((next_tile + kPanels) * kTileRows > w_.n) {
        product.template Run<kPanels>(NothingAhead(), unpacking);
      } else {
        const StretchAhead<T, kPanels> ahead(w_, next_tile, stretch_begin(next), next_steps,
                                             PanelProduct<Tiles>::BlocksOf(range),
                                             static_cast<int>(steps));
        product.template Run<kPanels>(ahead, unpacking);
      }
    }
  }

  // Whether one block has all rows of a range of no more than 32.
  bool SameTerms(const TileRange& range) const {
    const int64_t group = range.row_begin / kTileRows;
    return x_.exact == nullptr || range.row_end <= (group + 1) * kTileRows ||
           x_.exact[group] == x_.exact[group + 1];
  }

  template <bool kExact>
  void Unpack(int64_t tile, int panel, int64_t step, int64_t to) {
    const uint8_t* const scales = w_.data + tile * w_.tile_bytes;
    UnpackTile<V, T, kExact>(scales, scales + w_.scale_bytes + step * T::kQuantBytes, step,
                             high_[panel] + to * kTileElements, low_[panel] + to * kTileElements);
  }

  const QuantizedPanels& w_;
  const TileRows& x_;
  const TileRange& range_;
  bool exact_ = false;
  alignas(64) uint16_t high_[2][kStretchSteps * kTileElements];
  alignas(64) uint16_t low_[2][kStretchSteps * kTileElements];
  alignas(64) float sums_[kSumRows / kTileRows * 2 * kTileRows * kTileRows];
};

template <class V, class Tiles, class T>
void MultiplyQuantizedTiles(const QuantizedPanels& w, const TileRows& x, const TileRange& range) {
  QuantizedTileProduct<V, Tiles, T>(w, x, range).Run();
}

template <class V, class Bf16, class Tiles>
constexpr TileKernels TileKernelsFor() {
  return {
      PackTileRow<Bf16>,
      PackTileSwiGlu<V, Bf16>,
      MultiplyDenseByTiles<Tiles>,
      MultiplyQuantizedTiles<V, Tiles, Format<8, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<4, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<4, ScaleKind::kScaleMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<5, ScaleKind::kScale, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<5, ScaleKind::kScaleMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<4, ScaleKind::kSuperMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<5, ScaleKind::kSuperMin, 1>>,
      MultiplyQuantizedTiles<V, Tiles, Format<6, ScaleKind::kSuperScale, 1>>,
  };
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_WEIGHTS_INL_H_
