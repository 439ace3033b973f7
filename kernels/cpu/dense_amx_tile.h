#ifndef REFRAIN_KERNELS_CPU_DENSE_AMX_TILE_H_
#define REFRAIN_KERNELS_CPU_DENSE_AMX_TILE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/dense_kernels.h"

// The product of bf16 matrices by AMX tiles: 32 rows x 32 columns at a time in four sum tiles, two
// tiles of x, two of W. A template over the tile instructions of amx_tiles.h.

namespace refrain::kernels::cpu {

template <class Tiles>
class AmxProduct {
 public:
  explicit AmxProduct(const DenseAmxProduct& product) : product_(product) {}

  void Run() {
    const int64_t full_rows = product_.rows / kBlockRows * kBlockRows;
    if (full_rows > 0) {
      Configure(kBlockRows);
      // Rows whose x stays in the L2 cache while W streams by.
      int64_t group_rows = kGroupBytes / (product_.k * 2) / kBlockRows * kBlockRows;
      if (group_rows < kBlockRows) group_rows = kBlockRows;
      for (int64_t row = 0; row < full_rows; row += group_rows) {
        MultiplyRows(row, row + group_rows < full_rows ? row + group_rows : full_rows);
      }
    }
    if (full_rows < product_.rows) {
      Configure(static_cast<int>(product_.rows - full_rows));
      MultiplyRows(full_rows, product_.rows);
    }
    // Left in use, the tiles would be saved at every context switch.
    Tiles::Release();
  }

 private:
  static constexpr int kTileRows = 16;
  static constexpr int kBlockRows = 2 * kTileRows;
  static constexpr int kColumns = 16;
  static constexpr int kTileK = 32;  // elements of k in one tile
  static constexpr int64_t kTileBytes = 1024;
  static constexpr int64_t kGroupBytes = 1 << 20;
  // Tiles 0 to 3 are sums[row half][panel], 4 and 5 the halves of x, 6 and 7 the panels of W.

  void Configure(int rows) {
    half_rows_[0] = rows < kTileRows ? rows : kTileRows;
    half_rows_[1] = rows - half_rows_[0];
    AmxTileConfig config;
    for (int half = 0; half < 2; ++half) {
      SetTile(config, 2 * half, half_rows_[half]);
      SetTile(config, 2 * half + 1, half_rows_[half]);
      SetTile(config, 4 + half, half_rows_[half]);
      SetTile(config, 6 + half, kTileRows);
    }
    Tiles::Configure(config);
  }

  // A tile of no rows must have no row bytes either.
  static void SetTile(AmxTileConfig& config, int tile, int rows) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = rows > 0 ? 64 : 0;
  }

  void MultiplyRows(int64_t row_begin, int64_t row_end) {
    const int64_t num_panels = (product_.columns + kColumns - 1) / kColumns;
    for (int64_t panel = 0; panel < num_panels; panel += 2) {
      const bool two_panels = panel + 1 < num_panels;
      for (int64_t row = row_begin; row < row_end; row += kBlockRows) {
        if (half_rows_[1] > 0) {
          two_panels ? MultiplyBlock<2, 2>(row, panel) : MultiplyBlock<2, 1>(row, panel);
        } else {
          two_panels ? MultiplyBlock<1, 2>(row, panel) : MultiplyBlock<1, 1>(row, panel);
        }
      }
    }
  }

  template <int kHalves, int kPanels>
  void MultiplyBlock(int64_t row, int64_t panel) {
    const int64_t panel_bytes = product_.k / kTileK * kTileBytes;
    const int64_t x_bytes = product_.x_stride * 2;
    const auto* x = reinterpret_cast<const std::byte*>(product_.x) + row * x_bytes;
    const std::byte* w = product_.panels + panel * panel_bytes;
    Tiles::template Zero<0>();
    if constexpr (kPanels == 2) Tiles::template Zero<1>();
    if constexpr (kHalves == 2) Tiles::template Zero<2>();
    if constexpr (kHalves == 2 && kPanels == 2) Tiles::template Zero<3>();
    for (int64_t k = 0; k < product_.k; k += kTileK) {
      Tiles::template Load<4>(x, x_bytes);
      Tiles::template Load<6>(w, 64);
      Tiles::template DotBf16<0, 4, 6>();
      if constexpr (kPanels == 2) {
        Tiles::template Load<7>(w + panel_bytes, 64);
        Tiles::template DotBf16<1, 4, 7>();
      }
      if constexpr (kHalves == 2) {
        Tiles::template Load<5>(x + kTileRows * x_bytes, x_bytes);
        Tiles::template DotBf16<2, 5, 6>();
      }
      if constexpr (kHalves == 2 && kPanels == 2) Tiles::template DotBf16<3, 5, 7>();
      x += kTileK * 2;
      w += kTileBytes;
    }
    StoreTile<0>(row, panel);
    if constexpr (kPanels == 2) StoreTile<1>(row, panel + 1);
    if constexpr (kHalves == 2) StoreTile<2>(row + kTileRows, panel);
    if constexpr (kHalves == 2 && kPanels == 2) StoreTile<3>(row + kTileRows, panel + 1);
  }

  template <int kTile>
  void StoreTile(int64_t row, int64_t panel) {
    float* out = product_.out + row * product_.out_stride + panel * kColumns;
    const int64_t left = product_.columns - panel * kColumns;
    const int columns = left < kColumns ? static_cast<int>(left) : kColumns;
    if (columns == kColumns && !product_.accumulate) {
      Tiles::template Store<kTile>(out, product_.out_stride * sizeof(float));
      return;
    }
    alignas(64) float sums[kTileRows][kColumns];
    Tiles::template Store<kTile>(sums, sizeof(sums[0]));
    for (int r = 0; r < half_rows_[kTile / 2]; ++r, out += product_.out_stride) {
      for (int i = 0; i < columns; ++i) {
        out[i] = product_.accumulate ? out[i] + sums[r][i] : sums[r][i];
      }
    }
  }

  const DenseAmxProduct& product_;
  int half_rows_[2] = {};  // rows of the upper and the lower tiles
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_DENSE_AMX_TILE_H_
