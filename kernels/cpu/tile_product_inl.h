// Products by AMX tiles of bf16, for inclusion by the files of single instruction-set levels only.
// Templates over the tiles of amx_tiles.h; see tile_kernels.h for the operands.

#ifndef REFRAIN_KERNELS_CPU_TILE_PRODUCT_INL_H_
#define REFRAIN_KERNELS_CPU_TILE_PRODUCT_INL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile_blocks_inl.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

// One or two panels by all rows of a range: 32 rows x 32 columns at a time in four sum tiles.
template <class Tiles>
class PanelProduct {
 public:
  // Steps [step, step + steps) of k. The panels, of which range.tile_begin is the first, hold these
  // steps only. `sums` have room for the rows of the range.
  PanelProduct(const TileRows& x, const TileRange& range, const TilePanels& w, int64_t step,
               int64_t steps, const PanelSums& sums)
      : x_(x),
        range_(range),
        w_(w),
        step_(step),
        steps_(steps),
        sums_(sums),
        blocks_(BlocksOf(range)) {}

  // Blocks of one or two groups that Run goes over, at least.
  static int64_t BlocksOf(const TileRange& range) {
    return (range.row_end - range.row_begin + 2 * kTileRows - 1) / (2 * kTileRows);
  }

  // All steps are in the panels already.
  struct WholePanels {
    int64_t operator()(int64_t i) const { return i * kTileElements; }
  };

  // `ahead`: its Take() says what each block asks the caches for, as StretchAhead; a step of it as
  // many lines. `first_weights` makes the panels while the first block is multiplied: called before
  // step i, it returns where that step's tiles are in them by then, in elements.
  template <int kPanels, class Ahead, class Weights = WholePanels>
  void Run(Ahead ahead, Weights first_weights = {}) {
    const int64_t groups_end = (range_.row_end + kTileRows - 1) / kTileRows;
    int64_t group = range_.row_begin / kTileRows;
    if (group >= groups_end) return;
    group += Blocks<kPanels>(group, groups_end, ahead.Take(), first_weights);
    while (group < groups_end) {
      group += Blocks<kPanels>(group, groups_end, ahead.Take(), WholePanels());
    }
  }

 private:
  static constexpr int64_t kRowBytes = 64;
  // Tiles 0 to 3 are sums[row half][panel], 4 and 5 the halves of x, 6 and 7 the panels of W.

  // One or two groups of rows, from `group` on. Returns how many.
  template <int kPanels, class Lines, class Weights>
  int Blocks(int64_t group, int64_t groups_end, Lines lines, Weights weights) {
    const bool exact = IsExact(group);
    const bool two = group + 1 < groups_end && IsExact(group + 1) == exact;
    if (exact) {
      two ? Block<2, kPanels, true>(group, lines, weights)
          : Block<1, kPanels, true>(group, lines, weights);
    } else {
      two ? Block<2, kPanels, false>(group, lines, weights)
          : Block<1, kPanels, false>(group, lines, weights);
    }
    return two ? 2 : 1;
  }

  bool IsExact(int64_t group) const { return x_.exact != nullptr && x_.exact[group] != 0; }

  template <int kHalves, int kPanels, bool kExact, class Lines, class Weights>
  void Block(int64_t group, Lines lines, Weights weights) {
    const int64_t at = (group * x_.steps + step_) * kTileElements;
    const int64_t half = x_.steps * kTileElements;
    Begin<0>(group);
    if constexpr (kPanels == 2) Begin<1>(group);
    if constexpr (kHalves == 2) Begin<2>(group);
    if constexpr (kHalves == 2 && kPanels == 2) Begin<3>(group);
    for (int64_t step = 0; step < steps_; ++step) {
      const int64_t i = weights(step);
      const int64_t from = at + step * kTileElements;
      LoadX<kHalves>(x_.high + from, half);
      for (int line = 0; line < lines.lines; ++line, lines.p += 64) {
        PrefetchToSecondLevel(lines.p);
      }
      if constexpr (kExact) {
        LoadW<kPanels>(w_.low + i);
        Dots<kHalves, kPanels>();
        LoadW<kPanels>(w_.high + i);
        Dots<kHalves, kPanels>();
        LoadX<kHalves>(x_.low + from, half);
        Dots<kHalves, kPanels>();
      } else {
        // Loads between the products, which do not wait for the later ones.
        Tiles::template Load<6>(w_.high + i, kRowBytes);
        Tiles::template DotBf16<0, 4, 6>();
        if constexpr (kPanels == 2) {
          Tiles::template Load<7>(w_.high + w_.panel_elements + i, kRowBytes);
          Tiles::template DotBf16<1, 4, 7>();
        }
        if constexpr (kHalves == 2) Tiles::template DotBf16<2, 5, 6>();
        if constexpr (kHalves == 2 && kPanels == 2) Tiles::template DotBf16<3, 5, 7>();
      }
    }
    End<0>(group);
    if constexpr (kPanels == 2) End<1>(group);
    if constexpr (kHalves == 2) End<2>(group);
    if constexpr (kHalves == 2 && kPanels == 2) End<3>(group);
  }

  // Of several blocks of rows past the first-level cache, which is the panels' then.
  template <int kHalves>
  void LoadX(const uint16_t* x, int64_t half) const {
    if (blocks_ > 1) {
      Tiles::template LoadOnce<4>(x, kRowBytes);
      if constexpr (kHalves == 2) Tiles::template LoadOnce<5>(x + half, kRowBytes);
    } else {
      Tiles::template Load<4>(x, kRowBytes);
      if constexpr (kHalves == 2) Tiles::template Load<5>(x + half, kRowBytes);
    }
  }

  template <int kPanels>
  void LoadW(const uint16_t* w) const {
    Tiles::template Load<6>(w, kRowBytes);
    if constexpr (kPanels == 2) Tiles::template Load<7>(w + w_.panel_elements, kRowBytes);
  }

  template <int kHalves, int kPanels>
  static void Dots() {
    Tiles::template DotBf16<0, 4, 6>();
    if constexpr (kPanels == 2) Tiles::template DotBf16<1, 4, 7>();
    if constexpr (kHalves == 2) Tiles::template DotBf16<2, 5, 6>();
    if constexpr (kHalves == 2 && kPanels == 2) Tiles::template DotBf16<3, 5, 7>();
  }

  // Where the sums of tile `kSum` belong, and how many rows and columns of it are there.
  struct Place {
    float* out;
    int64_t rows, columns;
    bool whole() const { return rows >= kTileRows && columns >= kTileRows; }
  };
  template <int kSum>
  Place PlaceOf(int64_t group) const {
    const int64_t row = (group + kSum / 2) * kTileRows;
    const int64_t column = (range_.tile_begin + kSum % 2) * kTileRows;
    const int64_t rows = range_.row_end - row;
    const int64_t columns = range_.n - column;
    return {range_.out + row * range_.out_stride + column, rows < kTileRows ? rows : kTileRows,
            columns < kTileRows ? columns : kTileRows};
  }

  template <int kSum>
  float* Kept(int64_t group) const {
    const int64_t tile = (group - range_.row_begin / kTileRows + kSum / 2) * 2 + kSum % 2;
    return sums_.kept + tile * kTileRows * kTileRows;
  }

  template <int kSum>
  void Begin(int64_t group) const {
    if (sums_.before) return Tiles::template Load<kSum>(Kept<kSum>(group), kRowBytes);
    if (!range_.accumulate) return Tiles::template Zero<kSum>();
    const Place place = PlaceOf<kSum>(group);
    if (place.whole()) {
      return Tiles::template Load<kSum>(place.out, range_.out_stride * sizeof(float));
    }
    alignas(64) float sums[kTileRows][kTileRows] = {};
    for (int64_t r = 0; r < place.rows; ++r) {
      for (int64_t i = 0; i < place.columns; ++i) {
        sums[r][i] = place.out[r * range_.out_stride + i];
      }
    }
    Tiles::template Load<kSum>(sums, kRowBytes);
  }

  template <int kSum>
  void End(int64_t group) const {
    if (sums_.after) return Tiles::template Store<kSum>(Kept<kSum>(group), kRowBytes);
    const Place place = PlaceOf<kSum>(group);
    if (place.whole()) {
      return Tiles::template Store<kSum>(place.out, range_.out_stride * sizeof(float));
    }
    alignas(64) float sums[kTileRows][kTileRows];
    Tiles::template Store<kSum>(sums, kRowBytes);
    for (int64_t r = 0; r < place.rows; ++r) {
      for (int64_t i = 0; i < place.columns; ++i) {
        place.out[r * range_.out_stride + i] = sums[r][i];
      }
    }
  }

  const TileRows& x_;
  const TileRange& range_;
  const TilePanels& w_;
  const int64_t step_, steps_;
  const PanelSums sums_;
  const int64_t blocks_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_PRODUCT_INL_H_
