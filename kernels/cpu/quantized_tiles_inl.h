// Products of many rows of two digits by AMX int8 tiles.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why. V must have 16 lanes and be kShifted; Tiles is as amx_tiles.h says.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_TILES_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_TILES_INL_H_

#include <cstdint>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"

namespace refrain::kernels::cpu {

// From this many rows on tiles are used, of two digits: what comes behind each block's tiles of
// sums takes most of the time, and of one digit more than vectors take in all
// (docs/results/amx.md).
inline constexpr int kMinTileRows = 64;

// One product. The unpacked operands of a block are, as they are, a tile of 8 rows (k / 4) of
// 16 x 4 bytes, and a block's digits of up to 16 rows of activations are two tiles of 32 bytes a
// row. Their products are the exact integers that the vector kernels make, and what follows is
// the same arithmetic in the same order: results are the same bits.
template <class V, class Tiles, class T>
class TileProduct {
 public:
  TileProduct(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range)
      : w_(w), x_(x), range_(range) {}

  void Run() {
    int64_t tile = range_.tile_begin;
    for (; tile + 2 <= range_.tile_end; tile += 2) MultiplyPanel<2>(tile);
    if (tile < range_.tile_end) MultiplyPanel<1>(tile);
    // Left in use, the tiles would be saved at every context switch.
    Tiles::Release();
  }

 private:
  static_assert(V::kLanes == kTile && V::kShifted && T::kDigits == 2);
  static constexpr int kMaxRows = 16;
  static constexpr int kSumBlocks = 4 / T::kSums;  // whose sums are kept at a time: 16 KiB
  static constexpr int kPartK = kBlockK / T::kSums;
  static constexpr int kPartOperands = kOperands / T::kSums;
  static constexpr int64_t kRowBytes = 64;  // of a tile of sums or operands

  // Tiles 0 and 1 are the sums of the high digits with both panels, 2 and 3 of the low ones, 4 and
  // 5 the digits, 6 and 7 the operands.
  void Configure(int rows) {
    if (rows == configured_rows_) return;
    configured_rows_ = rows;
    AmxTileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.rows[i] = static_cast<uint8_t>(i < 6 ? rows : kPartOperands);
      config.row_bytes[i] = static_cast<uint16_t>(i == 4 || i == 5 ? kPartK : kRowBytes);
    }
    Tiles::Configure(config);
  }

  // Tiles [tile, tile + kTiles) of the weight: unpacked once per stretch of k for all rows.
  template <int kTiles>
  void MultiplyPanel(int64_t tile) {
    Unpacked<V, T, kTiles> unpacked;
    const int columns = ColumnsIn<V, kTiles>(w_.n, tile);
    const int64_t rows = range_.row_end - range_.row_begin;
    const int64_t groups = (rows + kMaxRows - 1) / kMaxRows;
    const int64_t stretches = (w_.blocks + kUnpackBlocks - 1) / kUnpackBlocks;
    for (int64_t stretch = 0; stretch < stretches; ++stretch) {
      const int64_t block = stretch * w_.blocks / stretches;
      const auto blocks = static_cast<int>((stretch + 1) * w_.blocks / stretches - block);
      Unpack<V, T, kTiles>(w_, tile, block, blocks, unpacked);
      // Groups of nearly equal size, the larger ones first: their shape is set up at most twice.
      int64_t begin = range_.row_begin;
      for (int64_t group = 0; group < groups; ++group) {
        const auto count = static_cast<int>(rows / groups + (group < rows % groups ? 1 : 0));
        Configure(count);
        for (int b = 0; b < blocks; b += kSumBlocks) {
          const int sum_blocks = blocks - b < kSumBlocks ? blocks - b : kSumBlocks;
          SumBlocks<kTiles>(unpacked, begin, block, b, sum_blocks);
          ScaleBlocks<kTiles>(unpacked, begin, count, block, b, sum_blocks, tile, columns);
        }
        begin += count;
      }
    }
  }

  // sums_ = the integer dot products of blocks first + [b, b + count) with rows from `row` on.
  template <int kTiles>
  void SumBlocks(const Unpacked<V, T, kTiles>& w, int64_t row, int64_t first, int b, int count) {
    const int64_t stride = x_.blocks * 2 * kBlockK;
    for (int i = 0; i < count; ++i) {
      const int8_t* const digits = x_.digits + row * stride + (first + b + i) * 2 * kBlockK;
      for (int part = 0; part < T::kSums; ++part) {
        Tiles::template Load<4>(digits + part * kPartK, stride);
        Tiles::template Load<5>(digits + kBlockK + part * kPartK, stride);
        MultiplyTile<0>(w.operands[b + i][0][part * kPartOperands], sums_[i][part][0]);
        if constexpr (kTiles > 1) {
          MultiplyTile<1>(w.operands[b + i][1][part * kPartOperands], sums_[i][part][1]);
        }
      }
    }
  }

  template <int kPanel>
  void MultiplyTile(const uint8_t* operands, int32_t (*sums)[kMaxRows][kTile]) {
    Tiles::template Load<6 + kPanel>(operands, kRowBytes);
    Tiles::template Zero<kPanel>();
    Tiles::template DotI8U8<kPanel, 4, 6 + kPanel>();
    Tiles::template Store<kPanel>(sums[0], kRowBytes);
    Tiles::template Zero<2 + kPanel>();
    Tiles::template DotI8U8<2 + kPanel, 5, 6 + kPanel>();
    Tiles::template Store<2 + kPanel>(sums[1], kRowBytes);
  }

  // The rows' products (+)= what sums_ says, scaled.
  template <int kTiles>
  void ScaleBlocks(const Unpacked<V, T, kTiles>& w, int64_t row, int rows, int64_t first, int b,
                   int count, int64_t tile, int columns) {
    const bool accumulate = range_.accumulate || first + b > 0;
    for (int r = 0; r < rows; ++r) {
      float* const out = OutRow<V>(range_, row + r) + tile * kTile;
      typename V::F total[kTiles];
      for (int t = 0; t < kTiles; ++t) {
        total[t] = accumulate ? V::LoadN(out + t * kTile, columns - t * kTile) : V::SetF(0.0f);
      }
      for (int i = 0; i < count; ++i) {
        const RowBlock at = At<V, T>(x_, row + r, first + b + i);
        for (int t = 0; t < kTiles; ++t) {
          BlockScales<V> s;
          typename V::F dots[2];
          for (int part = 0; part < T::kSums; ++part) {
            s.scale[part] = V::LoadF(w.scales[b + i][t][part]);
            const typename V::I high =
                V::Add32(V::Load(sums_[i][part][t][0][r]), SumBegin<V, T>(at.negated_sum + part));
            dots[part] =
                JoinDigits<V, T>(high, V::Load(sums_[i][part][t][1][r]), at.negated_sum + part);
          }
          if constexpr (T::kHasMin) s.min = V::LoadF(w.mins[b + i][t]);
          total[t] = AddScaled<V, T>(total[t], dots, s, at);
        }
      }
      for (int t = 0; t < kTiles; ++t) {
        V::StoreN(out + t * kTile, total[t], columns - t * kTile);
      }
    }
  }

  const QuantizedPanels& w_;
  const FixedRows& x_;
  const ProductRange& range_;
  int configured_rows_ = 0;
  // [block][half][panel][high or low digit][row][column]
  alignas(64) int32_t sums_[kSumBlocks][T::kSums][2][2][kMaxRows][kTile];
};

template <class V, class Tiles, class T>
void MultiplyQuantizedByTiles(const QuantizedPanels& w, const FixedRows& x,
                              const ProductRange& range) {
  if (range.row_end - range.row_begin < kMinTileRows) return MultiplyQuantized<V, T>(w, x, range);
  TileProduct<V, Tiles, T>(w, x, range).Run();
}

template <class V, class Tiles>
constexpr FixedKernels FixedKernelsForTiles() {
  return {
      MultiplyQuantizedByTiles<V, Tiles, Format<8, ScaleKind::kScale, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<4, ScaleKind::kScale, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<4, ScaleKind::kScaleMin, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<5, ScaleKind::kScale, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<5, ScaleKind::kScaleMin, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<4, ScaleKind::kSuperMin, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<5, ScaleKind::kSuperMin, 2>>,
      MultiplyQuantizedByTiles<V, Tiles, Format<6, ScaleKind::kSuperScale, 2>>,
      QuantizeRow<V, 2>,
  };
}

template <class V, class Tiles>
constexpr QuantizedKernels KernelsForTiles(const TileKernels* tiles) {
  return {{FixedKernelsFor<V, 1>(), FixedKernelsForTiles<V, Tiles>()}, SiluMul<V>, tiles};
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_TILES_INL_H_
