// Products of whole tiles: many rows from unpacked operands, few rows by MultiplyDirectRows.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_PRODUCT_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_PRODUCT_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_digits_inl.h"
#include "kernels/cpu/quantized_direct_inl.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_operands_inl.h"
#include "kernels/cpu/quantized_unpacked_inl.h"
#include "kernels/cpu/quantized_weights_ahead_inl.h"

namespace refrain::kernels::cpu {

// Whether one of kRows rows has low digits at a block; of rows of one digit.
template <class V>
[[gnu::always_inline]] inline bool AnyLow(const FixedRows& x, int64_t row, int rows,
                                          int64_t block) {
  const uint8_t* const has_low = x.has_low + row * x.blocks + block;
  unsigned any = 0;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) any |= has_low[r * x.blocks];
  return any != 0;
}

// The low digits of a block that has none.
template <class V>
alignas(64) inline constexpr int8_t kNoDigits[kBlockK] = {};

// Integer dot products of operands [kBegin, kEnd) of kTiles tiles with kRows rows: of both digits
// if kLow, else of the high ones.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd, bool kLow>
[[gnu::always_inline]] inline void DotOperands(const uint8_t* operands, const RowBlock (&x)[kRows],
                                               int half, typename V::F (&dot)[kRows][kVectors]) {
  typename V::I sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = SumBegin<V, T>(x[r].negated_sum + half);
  }
  if constexpr (T::kWords) {
    static_assert(kLow, "a word is both digits");
    const int16_t* words[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) words[r] = x[r].words;
    DotWords<V, T, kVectors, kRows, kBegin, kEnd>(operands, words, sum);
  } else {
    const int8_t* high[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) high[r] = x[r].digits;
    DotDigit<V, T, kVectors, kRows, kBegin, kEnd>(operands, high, sum);
  }
  if constexpr (kLow && !T::kWords) {
    const int8_t* low[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      low[r] = T::kDigits == 2 ? x[r].digits + kBlockK : x[r].has_low ? x[r].low : kNoDigits<V>;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = V::template ShiftLeft32<kDigitBits>(sum[r][v]);
    }
    DotDigit<V, T, kVectors, kRows, kBegin, kEnd>(operands, low, sum);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      dot[r][v] = SumEnd<V, T, /*kJoined=*/kLow>(sum[r][v], x[r].negated_sum + half);
    }
  }
}

// total += the products of kRows rows with block b of kTiles unpacked tiles, which is block `block`
// of all: of both digits if kLow, else of the high ones.
template <class V, class T, int kTiles, int kRows, bool kLow>
[[gnu::always_inline]] inline void AddBlock(
    const Unpacked<V, T, kTiles>& w, int b, const FixedRows& x, int64_t row, int64_t block,
    typename V::F (&total)[kRows][kTiles * kTile / V::kLanes]) {
  constexpr int kParts = kTile / V::kLanes;
  constexpr int kVectors = kTiles * kParts;
  RowBlock at[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) at[r] = At<V, T>(x, row + r, block);
  typename V::F dot[T::kSums][kRows][kVectors];
  const uint8_t* operands = &w.operands[b][0][0][0];
  if constexpr (T::kHalves) {
    DotOperands<V, T, kVectors, kRows, 0, 4, kLow>(operands, at, 0, dot[0]);
    DotOperands<V, T, kVectors, kRows, 4, 8, kLow>(operands, at, 1, dot[1]);
  } else {
    DotOperands<V, T, kVectors, kRows, 0, 8, kLow>(operands, at, 0, dot[0]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const int lane = v % kParts * V::kLanes;
    BlockScales<V> s;
    s.scale[0] = V::LoadF(&w.scales[b][v / kParts][0][lane]);
    if constexpr (T::kHalves) s.scale[1] = V::LoadF(&w.scales[b][v / kParts][1][lane]);
    if constexpr (T::kHasMin) s.min = V::LoadF(&w.mins[b][v / kParts][lane]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      typename V::F dots[2];
      dots[0] = dot[0][r][v];
      if constexpr (T::kHalves) dots[1] = dot[1][r][v];
      total[r][v] = AddScaled<V, T>(total[r][v], dots, s, at[r]);
    }
  }
}

// AddBlock of a block of which one row at least has low digits, among others of which none has: out
// of line, and with the totals in memory, so that those others' keep all registers.
template <class V, class T, int kTiles, int kRows>
[[gnu::noinline]] void AddBlockWithLow(const Unpacked<V, T, kTiles>& w, int b, const FixedRows& x,
                                       int64_t row, int64_t block,
                                       float (&totals)[kRows][kTiles * kTile]) {
  constexpr int kVectors = kTiles * kTile / V::kLanes;
  typename V::F total[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) total[r][v] = V::LoadF(&totals[r][v * V::kLanes]);
  }
  AddBlock<V, T, kTiles, kRows, /*kLow=*/true>(w, b, x, row, block, total);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) V::StoreF(&totals[r][v * V::kLanes], total[r][v]);
  }
}

// kRows rows times kTiles unpacked tiles; totals stay in registers over `blocks` blocks, and in
// `range.out` from one call to the next.
template <class V, class T, int kTiles, int kRows>
void MultiplyUnpacked(const Unpacked<V, T, kTiles>& w, const FixedRows& x, int64_t row,
                      int64_t block_begin, int blocks, const ProductRange& range, int64_t tile,
                      int columns, LinesAhead ahead) {
  constexpr int kParts = kTile / V::kLanes;
  constexpr int kVectors = kTiles * kParts;
  const bool accumulate = range.accumulate || block_begin > 0;
  float* out[kRows];
  typename V::F total[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    out[r] = OutRow<V>(range, row + r) + tile * kTile;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] =
          accumulate ? V::LoadN(out[r] + v * V::kLanes, columns - v * V::kLanes) : V::SetF(0.0f);
      // While the product is computed: stores that miss fill the store buffer, and all stands
      // still.
      if (v % kParts == 0) V::PrefetchToWrite(out[r] + v * V::kLanes);
    }
  }
  for (int b = 0; b < blocks; ++b) {
    for (int i = 0; i < ahead.lines; ++i, ahead.p += 64) V::Prefetch(ahead.p);
    if (T::kDigits == 1 && AnyLow<V>(x, row, kRows, block_begin + b)) {
      alignas(64) float totals[kRows][kTiles * kTile];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) V::StoreF(&totals[r][v * V::kLanes], total[r][v]);
      }
      AddBlockWithLow<V, T, kTiles, kRows>(w, b, x, row, block_begin + b, totals);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) total[r][v] = V::LoadF(&totals[r][v * V::kLanes]);
      }
    } else {
      AddBlock<V, T, kTiles, kRows, /*kLow=*/T::kDigits == 2>(w, b, x, row, block_begin + b, total);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V::StoreN(out[r] + v * V::kLanes, total[r][v], columns - v * V::kLanes);
    }
  }
}

// Calls MultiplyUnpacked for `rows` in [1, kRows].
template <class V, class T, int kTiles, int kRows>
inline void MultiplyUnpackedRows(int rows, const Unpacked<V, T, kTiles>& w, const FixedRows& x,
                                 int64_t row, int64_t block_begin, int blocks,
                                 const ProductRange& range, int64_t tile, int columns,
                                 LinesAhead ahead) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      MultiplyUnpackedRows<V, T, kTiles, kRows - 1>(rows, w, x, row, block_begin, blocks, range,
                                                    tile, columns, ahead);
      return;
    }
  }
  MultiplyUnpacked<V, T, kTiles, kRows>(w, x, row, block_begin, blocks, range, tile, columns,
                                        ahead);
}

// Many rows, tiles [tile, tile + kTiles): unpacked once per stretch of k for all rows.
template <class V, class T, int kTiles>
void MultiplyTiles(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range,
                   int64_t tile) {
  Unpacked<V, T, kTiles> unpacked;
  const int columns = ColumnsIn<V, kTiles>(w.n, tile);
  const int64_t rows = range.row_end - range.row_begin;
  const int64_t groups = (rows + V::kGemmRows - 1) / V::kGemmRows;
  constexpr int kMostBlocks = Unpacked<V, T, kTiles>::kBlocks;
  const int64_t stretches = (w.blocks + kMostBlocks - 1) / kMostBlocks;
  for (int64_t stretch = 0; stretch < stretches; ++stretch) {
    const int64_t block = stretch * w.blocks / stretches;
    const auto blocks = static_cast<int>((stretch + 1) * w.blocks / stretches - block);
    Unpack<V, T, kTiles>(w, tile, block, blocks, unpacked);
    const bool last = stretch + 1 == stretches;
    const int64_t next_block = last ? 0 : block + blocks;
    const int64_t next_end = (last ? 1 : stretch + 2) * w.blocks / stretches;
    StretchAhead<T, kTiles> ahead(w, last ? tile + kTiles : tile, next_block, next_end - next_block,
                                  groups, blocks);
    for (int64_t group = 0; group < groups; ++group) {
      // Groups of nearly equal size: a last group of one row would leave most lanes of time idle.
      const int64_t begin = range.row_begin + group * rows / groups;
      const int64_t end = range.row_begin + (group + 1) * rows / groups;
      MultiplyUnpackedRows<V, T, kTiles, V::kGemmRows>(static_cast<int>(end - begin), unpacked, x,
                                                       begin, block, blocks, range, tile, columns,
                                                       ahead.Take());
    }
  }
}

template <class V, class T>
void MultiplyQuantized(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range) {
  const int64_t rows = range.row_end - range.row_begin;
  if constexpr (T::kDigits == 2 && !T::kWords && LeastRowsOfWords<V>(T::kBits) > 0) {
    if (x.words != nullptr && rows >= LeastRowsOfWords<V>(T::kBits)) {
      return MultiplyQuantized<V, InWords<T>>(w, x, range);
    }
  }
  if (rows <= V::kDirectRows) {
    return MultiplyDirectRows<V, T, V::kDirectRows>(static_cast<int>(rows), w, x, range);
  }
  int64_t tile = range.tile_begin;
  for (; tile + V::kGemmTiles <= range.tile_end; tile += V::kGemmTiles) {
    MultiplyTiles<V, T, V::kGemmTiles>(w, x, range, tile);
  }
  for (; tile < range.tile_end; ++tile) MultiplyTiles<V, T, 1>(w, x, range, tile);
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_PRODUCT_INL_H_
