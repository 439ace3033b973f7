// Products of whole tiles: few rows straight from the packed weight, many rows from unpacked
// operands.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_PRODUCT_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_PRODUCT_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_operands_inl.h"
#include "kernels/cpu/quantized_weights_ahead_inl.h"

namespace refrain::kernels::cpu {

// How far ahead of its use a line of weights is asked for. The hardware's own prefetcher stops at
// 4 KiB borders.
inline constexpr int kPrefetchBytes = 4096;

template <class V, int kTiles>
inline int ColumnsIn(int64_t n, int64_t tile) {
  const int64_t left = n - tile * kTile;
  return left < kTiles * kTile ? static_cast<int>(left) : kTiles * kTile;
}

// Few rows: every byte of the weight is read once, unpacked in registers and used for all rows.
template <class V, class T, int kRows>
void MultiplyDirect(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range,
                    int64_t row_begin) {
  constexpr int kParts = kTile / V::kLanes;
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    const uint8_t* scales = w.data + tile * w.tile_bytes;
    const uint8_t* quants = scales + w.scale_bytes;
    const int columns = ColumnsIn<V, 1>(w.n, tile);
    float* out = range.out + row_begin * range.out_stride + tile * kTile;
    for (int part = 0; part < kParts; ++part) {
      const int lanes = columns - part * V::kLanes;
      typename V::F total[kRows];
      for (int r = 0; r < kRows; ++r) {
        total[r] = range.accumulate ? V::LoadN(out + r * range.out_stride + part * V::kLanes, lanes)
                                    : V::SetF(0.0f);
      }
      for (int64_t block = 0; block < w.blocks; ++block) {
        const uint8_t* q = quants + block * T::kQuantBytes + part * V::kLanes * 4;
        if (part == 0) {
          for (int line = 0; line < T::kQuantBytes; line += 64) {
            V::Prefetch(q + kPrefetchBytes + line);
          }
        }
        typename V::I operands[kOperands];
        UnpackBlock<V, T>(q, operands);
        const BlockScales<V> s = LoadScales<V, T>(scales, block, part);
        for (int r = 0; r < kRows; ++r) {
          total[r] = MultiplyBlock<V, T>(operands, s, At<V, T>(x, row_begin + r, block), total[r]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        V::StoreN(out + r * range.out_stride + part * V::kLanes, total[r], lanes);
      }
    }
  }
}

// Calls MultiplyDirect for all of 1 to kRows rows; does nothing for none.
template <class V, class T, int kRows>
void MultiplyDirectRows(int rows, const QuantizedPanels& w, const FixedRows& x,
                        const ProductRange& range) {
  if (rows == kRows) return MultiplyDirect<V, T, kRows>(w, x, range, range.row_begin);
  if constexpr (kRows > 1) MultiplyDirectRows<V, T, kRows - 1>(rows, w, x, range);
}

// sum += the dot products of operands [kBegin, kEnd) with a digit of kRows rows, kDigitAt bytes
// into a block's.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd, int kDigitAt>
inline void DotDigit(const uint8_t* operands, const RowBlock x[kRows],
                     typename V::I sum[kRows][kVectors]) {
  constexpr int kParts = kTile / V::kLanes;
#pragma GCC unroll 8
  for (int j = kBegin; j < kEnd; j += 2) {
    typename V::I w0[kVectors], w1[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const uint8_t* p =
          operands + v / kParts * kOperands * 64 + v % kParts * V::kLanes * 4 + j * 64;
      w0[v] = V::Load(p);
      w1[v] = V::Load(p + 64);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename V::I a0 = V::Broadcast32(x[r].digits + kDigitAt + 4 * j);
      const typename V::I a1 = V::Broadcast32(x[r].digits + kDigitAt + 4 * j + 4);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = V::template DotPair<T::kBits>(sum[r][v], w0[v], w1[v], a0, a1);
      }
    }
  }
}

// Integer dot products of operands [kBegin, kEnd) of kTiles tiles with kRows rows.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd>
inline void DotOperands(const uint8_t* operands, const RowBlock x[kRows], int half,
                        typename V::F dot[kRows][kVectors]) {
  typename V::I sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = SumBegin<V, T>(x[r].negated_sum + half);
  }
  DotDigit<V, T, kVectors, kRows, kBegin, kEnd, 0>(operands, x, sum);
  if constexpr (T::kDigits == 2) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = V::template ShiftLeft32<kDigitBits>(sum[r][v]);
    }
    DotDigit<V, T, kVectors, kRows, kBegin, kEnd, kBlockK>(operands, x, sum);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      dot[r][v] = SumEnd<V, T>(sum[r][v], x[r].negated_sum + half);
    }
  }
}

// kRows rows times kTiles unpacked tiles; totals stay in registers over `blocks` blocks, and in
// `out` from one call to the next.
template <class V, class T, int kTiles, int kRows>
void MultiplyUnpacked(const Unpacked<V, T, kTiles>& w, const FixedRows& x, int64_t row,
                      int64_t block_begin, int blocks, bool accumulate, float* out,
                      int64_t out_stride, int columns, LinesAhead ahead) {
  constexpr int kParts = kTile / V::kLanes;
  constexpr int kVectors = kTiles * kParts;
  typename V::F total[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] = accumulate
                        ? V::LoadN(out + r * out_stride + v * V::kLanes, columns - v * V::kLanes)
                        : V::SetF(0.0f);
      // While the product is computed: stores that miss fill the store buffer, and all stands
      // still.
      if (v % kParts == 0) V::PrefetchToWrite(out + r * out_stride + v * V::kLanes);
    }
  }
  for (int b = 0; b < blocks; ++b) {
    RowBlock at[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) at[r] = At<V, T>(x, row + r, block_begin + b);
    for (int i = 0; i < ahead.lines; ++i, ahead.p += 64) V::PrefetchFar(ahead.p);
    typename V::F dot[T::kSums][kRows][kVectors];
    const uint8_t* operands = &w.operands[b][0][0][0];
    if constexpr (T::kHalves) {
      DotOperands<V, T, kVectors, kRows, 0, 4>(operands, at, 0, dot[0]);
      DotOperands<V, T, kVectors, kRows, 4, 8>(operands, at, 1, dot[1]);
    } else {
      DotOperands<V, T, kVectors, kRows, 0, 8>(operands, at, 0, dot[0]);
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
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V::StoreN(out + r * out_stride + v * V::kLanes, total[r][v], columns - v * V::kLanes);
    }
  }
}

// Calls MultiplyUnpacked for `rows` in [1, kRows].
template <class V, class T, int kTiles, int kRows>
inline void MultiplyUnpackedRows(int rows, const Unpacked<V, T, kTiles>& w, const FixedRows& x,
                                 int64_t row, int64_t block_begin, int blocks, bool accumulate,
                                 float* out, int64_t out_stride, int columns, LinesAhead ahead) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      MultiplyUnpackedRows<V, T, kTiles, kRows - 1>(rows, w, x, row, block_begin, blocks,
                                                    accumulate, out, out_stride, columns, ahead);
      return;
    }
  }
  MultiplyUnpacked<V, T, kTiles, kRows>(w, x, row, block_begin, blocks, accumulate, out, out_stride,
                                        columns, ahead);
}

// Many rows, tiles [tile, tile + kTiles): unpacked once per stretch of k for all rows.
template <class V, class T, int kTiles>
void MultiplyTiles(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range,
                   int64_t tile) {
  Unpacked<V, T, kTiles> unpacked;
  const int columns = ColumnsIn<V, kTiles>(w.n, tile);
  const int64_t rows = range.row_end - range.row_begin;
  const int64_t groups = (rows + V::kGemmRows - 1) / V::kGemmRows;
  const int64_t stretches = (w.blocks + kUnpackBlocks - 1) / kUnpackBlocks;
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
      MultiplyUnpackedRows<V, T, kTiles, V::kGemmRows>(
          static_cast<int>(end - begin), unpacked, x, begin, block, blocks,
          range.accumulate || block > 0, range.out + begin * range.out_stride + tile * kTile,
          range.out_stride, columns, ahead.Take());
    }
  }
}

template <class V, class T>
void MultiplyQuantized(const QuantizedPanels& w, const FixedRows& x, const ProductRange& range) {
  const int64_t rows = range.row_end - range.row_begin;
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
